package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// redisNodesFaults befall a Redis of several nodes.
func redisNodesFaults() []*fault {
	watched, nodes := []store{sentinel}, []store{cluster}
	return []*fault{
		{kind: ofRedis, name: "Sentinel: primary killed", stores: watched, strike: primaryKilled},
		{kind: ofRedis, name: "Sentinel: primary paused until it is replaced", stores: watched, strike: primaryPaused},
		{kind: ofRedis, name: "Sentinel: split, both sides written to", stores: watched, strike: primarySplit},
		{kind: ofRedis, name: "Cluster: the shard's node killed, started empty", stores: nodes, strike: nodeKilled},
		{kind: ofRedis, name: "Cluster: the shard's slot migrated", stores: nodes, strike: slotMigrated},
	}
}

// primary finds which of the two servers is the primary now.
func (s *stage) primary() (primary, replica *servers.RedisProc) {
	s.t.Helper()
	w := s.store.watched
	eventually(s.t, "one of the two is the primary, and the other follows it", func() bool {
		for _, order := range [][2]*servers.RedisProc{{w.Primary, w.Replica}, {w.Replica, w.Primary}} {
			if replicationOf(s, order[0], "role:master") && replicationOf(s, order[1], "master_link_status:up") {
				primary, replica = order[0], order[1]
				return true
			}
		}
		return false
	})
	return primary, replica
}

// replicationOf reports whether a server says that of its replication.
func replicationOf(s *stage, p *servers.RedisProc, text string) bool {
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), DialTimeout: time.Second, ReadTimeout: time.Second, MaxRetries: -1})
	defer func() { _ = c.Close() }()
	info, err := c.Info(s.ctx, "replication").Result()
	return err == nil && strings.Contains(info, text)
}

func (s *stage) promoted(p *servers.RedisProc) {
	s.t.Helper()
	eventually(s.t, "the replica takes the primary's place", func() bool { return replicationOf(s, p, "role:master") })
}

func primaryKilled(s *stage, rnd *rand.Rand) (heal func()) {
	primary, replica := s.primary()
	primary.Kill()
	s.promoted(replica)
	pause(rnd, 0, 2*time.Second)
	return primary.Start // Sentinels make it follow the other one
}

// primaryPaused wakes the old primary up when another has its place: it still takes itself for the
// primary.
func primaryPaused(s *stage, rnd *rand.Rand) (heal func()) {
	primary, replica := s.primary()
	pid := primary.Pid()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		s.t.Error(err)
	}
	s.promoted(replica)
	pause(rnd, 0, 2*time.Second)
	return func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			s.t.Error(err)
		}
	}
}

// primarySplit parts the replica from its primary, lets writers go on there, and then makes the
// replica, which is behind, the primary: what the old one took meanwhile is thrown away.
func primarySplit(s *stage, rnd *rand.Rand) (heal func()) {
	primary, replica := s.primary()
	link := func(state string) {
		c := redis.NewClient(&redis.Options{Addr: primary.Addr()})
		defer func() { _ = c.Close() }()
		if err := c.Do(s.ctx, "ACL", "SETUSER", "replica", "on", ">replica", "~*", "&*", "+@all", state).Err(); err != nil {
			s.t.Logf("the replica's user on the primary: %v", err)
		}
		if state == "off" {
			_ = c.Do(s.ctx, "CLIENT", "KILL", "TYPE", "replica").Err()
		}
	}
	link("off")
	pause(rnd, time.Second, 3*time.Second) // the two diverge
	eventually(s.t, "a Sentinel begins the failover", func() bool {
		for _, addr := range s.store.addrs() {
			c := redis.NewSentinelClient(&redis.Options{Addr: addr})
			err := c.Failover(s.ctx, servers.Master).Err()
			_ = c.Close()
			if err == nil {
				return true
			}
		}
		return replicationOf(s, replica, "role:master")
	})
	s.promoted(replica)
	return func() { link("on") } // for when the roles change back
}

// shardNode is the node that has the shard's slot, and another one.
func (s *stage) shardNode() (has, other *servers.RedisProc, slot int64) {
	s.t.Helper()
	eventually(s.t, "the Cluster tells where the shard is", func() bool {
		c, ok := s.redis.(*redis.ClusterClient)
		if !ok {
			return false
		}
		owner, err := c.MasterForKey(s.ctx, s.shardKey("verdicts"))
		if err != nil {
			return false
		}
		if slot, err = c.ClusterKeySlot(s.ctx, s.shardKey("verdicts")).Result(); err != nil {
			return false
		}
		has, other = nil, nil
		for _, n := range primaries(s) {
			if n.Addr() == owner.Options().Addr {
				has = n
			} else {
				other = n
			}
		}
		return has != nil && other != nil
	})
	return has, other, slot
}

// primaries are the Cluster's nodes that take themselves for one.
func primaries(s *stage) (all []*servers.RedisProc) {
	for _, n := range slices.Concat(s.store.nodes.Nodes, s.store.nodes.Replicas) {
		if replicationOf(s, n, "role:master") {
			all = append(all, n)
		}
	}
	return all
}

func nodeKilled(s *stage, rnd *rand.Rand) (heal func()) {
	node, _, _ := s.shardNode()
	node.Kill()
	pause(rnd, 0, 3*time.Second)
	return node.Start
}

// slotMigrated moves the shard's slot to another node while it is written and read.
func slotMigrated(s *stage, rnd *rand.Rand) (heal func()) {
	from, to, slot := s.shardNode()
	a, b := redis.NewClient(&redis.Options{Addr: from.Addr()}), redis.NewClient(&redis.Options{Addr: to.Addr()})
	defer func() { _ = a.Close(); _ = b.Close() }()
	if err := migrate(s.ctx, rnd, a, b, slot, primaries(s)); err != nil {
		s.t.Errorf("migrate slot %d from %s to %s: %v", slot, from.Addr(), to.Addr(), err)
	}
	return func() {}
}

// migrate is what redis-cli --cluster reshard does for one slot.
func migrate(ctx context.Context, rnd *rand.Rand, from, to *redis.Client, slot int64, all []*servers.RedisProc) error {
	fromID, err := from.Do(ctx, "CLUSTER", "MYID").Text()
	if err != nil {
		return err
	}
	toID, err := to.Do(ctx, "CLUSTER", "MYID").Text()
	if err != nil {
		return err
	}
	if err := to.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID).Err(); err != nil {
		return err
	}
	if err := from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID).Err(); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(to.Options().Addr)
	if err != nil {
		return err
	}
	for {
		keys, err := from.ClusterGetKeysInSlot(ctx, int(slot), 10).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		for _, key := range keys { // one by one: for a moment they are on both nodes
			pause(rnd, 0, 200*time.Millisecond)
			if err := from.Do(ctx, "MIGRATE", host, port, key, 0, 10_000).Err(); err != nil {
				return fmt.Errorf("key %q: %w", key, err)
			}
		}
	}
	for _, n := range all {
		c := redis.NewClient(&redis.Options{Addr: n.Addr()})
		err := c.Do(ctx, "CLUSTER", "SETSLOT", strconv.FormatInt(slot, 10), "NODE", toID).Err()
		_ = c.Close()
		if err != nil {
			return fmt.Errorf("tell %s: %w", n.Addr(), err)
		}
	}
	return nil
}
