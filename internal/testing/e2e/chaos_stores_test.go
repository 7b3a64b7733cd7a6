package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// store is how a plan's Redis runs.
type store int

const (
	single     store = iota
	sentinel         // a primary, its replica, and three that watch them
	cluster          // three primaries
	replicated       // three primaries with a replica each, and as many shards; no plan draws it
)

func (s store) String() string {
	return [...]string{"one server", "Sentinel", "a Cluster", "a Cluster with replicas"}[s]
}

// stores are a plan's Redis servers: one of the three.
type stores struct {
	one     *servers.RedisProc
	watched *servers.RedisSentinel
	nodes   *servers.RedisCluster
}

func startStores(t *testing.T, kind store) (s stores) {
	t.Helper()
	switch kind {
	case sentinel:
		s.watched = servers.StartRedisSentinel(t, 3, "--enable-debug-command", "yes")
	case cluster:
		s.nodes = servers.StartRedisCluster(t, 3, "--enable-debug-command", "yes")
	case replicated:
		s.nodes = servers.StartRedisCluster(t, 3, "--repl-diskless-sync-delay", "0")
		s.nodes.Replicate(t)
	default:
		s.one = servers.StartRedis(t, "--enable-debug-command", "yes")
	}
	return s
}

// addr is where the servers are asked first.
func (s *stores) addr() string { return s.addrs()[0] }

func (s *stores) addrs() []string {
	switch {
	case s.watched != nil:
		return s.watched.Addrs()
	case s.nodes != nil:
		return s.nodes.Addrs()
	}
	return []string{s.one.Addr()}
}

// options are those of a program that reaches a single server through a gate, and several by
// themselves: it comes to know their own addresses.
func (s *stores) options(g *gate) []string {
	all := strings.Join(s.addrs(), ",")
	switch {
	case s.watched != nil:
		return []string{"--redis", all, "--redis-master", servers.Master}
	case s.nodes != nil && len(s.nodes.Replicas) > 0:
		return []string{"--redis", all, "--redis-cluster", "--shards", "3"}
	case s.nodes != nil:
		return []string{"--redis", all, "--redis-cluster"}
	}
	return []string{"--redis", g.addr}
}

// client is the test's own.
func (s *stores) client(t *testing.T) redis.UniversalClient {
	c := s.dial(nil)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// dial returns a client, which reaches a single server through a gate, if there is one.
func (s *stores) dial(g *gate) redis.UniversalClient {
	o := &redis.UniversalOptions{Addrs: s.addrs(), IsClusterMode: s.nodes != nil,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}}
	switch {
	case s.watched != nil:
		o.MasterName = servers.Master
	case s.one != nil && g != nil:
		o.Addrs = []string{g.addr}
	}
	return redis.NewUniversalClient(o)
}

// flush empties every node that can be written to.
func (s *stores) flush(st *stage) {
	st.t.Helper()
	empty := func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() }
	var err error
	if all, ok := st.redis.(*redis.ClusterClient); ok {
		err = all.ForEachMaster(st.ctx, empty)
	} else {
		err = st.redis.FlushAll(st.ctx).Err()
	}
	if err != nil {
		st.t.Error(err)
	}
}
