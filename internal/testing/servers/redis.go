package servers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/freeport"
)

// RedisCluster is a Redis Cluster of the test's own: primaries, with the slots shared among them
// evenly, and the replicas that Replicate adds.
type RedisCluster struct {
	Nodes    []*RedisProc // the first primaries
	Replicas []*RedisProc // the i-th begins as that of the i-th node
	args     []string
}

// StartRedisCluster starts a Cluster, and returns when all its nodes know each other. It takes some
// 3 s.
func StartRedisCluster(t testing.TB, nodes int, args ...string) *RedisCluster {
	t.Helper()
	Redis(t)
	c := &RedisCluster{args: append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "3000"}, args...)}
	for range nodes {
		c.Nodes = append(c.Nodes, c.node(t))
	}
	const slots = 16384
	for i, node := range c.Nodes {
		first, last := i*slots/nodes, (i+1)*slots/nodes-1
		node.do("CLUSTER", "SET-CONFIG-EPOCH", i+1)
		node.do("CLUSTER", "ADDSLOTSRANGE", first, last)
		host, port, _ := net.SplitHostPort(c.Nodes[0].addr)
		node.do("CLUSTER", "MEET", host, port)
	}
	for _, node := range c.Nodes {
		node.knows(nodes)
	}
	return c
}

// node starts one that knows no other yet.
func (c *RedisCluster) node(t testing.TB) *RedisProc {
	t.Helper()
	p := &RedisProc{newProc(t, "redis.sh", "REDIS_EXTRA="+strings.Join(c.args, " "))}
	p.addr = strings.TrimSpace(p.run("start", p.dir, strconv.Itoa(portWithBus(t))))
	return p
}

// knows waits until the Cluster is whole, of so many nodes.
func (p *RedisProc) knows(nodes int) {
	p.t.Helper()
	p.until("the Cluster is whole", func(rdb *redis.Client) bool {
		info, _ := rdb.ClusterInfo(context.Background()).Result()
		return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", nodes))
	})
}

// Replicate adds a replica of each primary, and returns when they are in step. A primary that is gone
// is replaced after some 4 s, if there are three.
func (c *RedisCluster) Replicate(t testing.TB) {
	t.Helper()
	host, port, _ := net.SplitHostPort(c.Nodes[0].addr)
	for range c.Nodes {
		p := c.node(t)
		p.do("CLUSTER", "MEET", host, port)
		c.Replicas = append(c.Replicas, p)
	}
	for i, p := range c.Replicas {
		p.knows(2 * len(c.Nodes))
		rdb := redis.NewClient(&redis.Options{Addr: c.Nodes[i].addr})
		id, err := rdb.Do(context.Background(), "CLUSTER", "MYID").Text()
		_ = rdb.Close()
		if err != nil {
			t.Fatal(err)
		}
		p.do("CLUSTER", "REPLICATE", id)
		p.until("the replica is in step", func(rdb *redis.Client) bool {
			info, _ := rdb.Info(context.Background(), "replication").Result()
			return strings.Contains(info, "master_link_status:up")
		})
	}
	for _, p := range c.Nodes {
		p.knows(2 * len(c.Nodes))
	}
}

// Addrs are the nodes' addresses.
func (c *RedisCluster) Addrs() (addrs []string) {
	for _, n := range c.Nodes {
		addrs = append(addrs, n.addr)
	}
	return addrs
}

// portWithBus returns a port that is free, as is the one 10,000 above it, on which the nodes of a
// Cluster talk.
func portWithBus(t testing.TB) int {
	for range 1000 {
		port := 15000 + rand.IntN(7000)
		if freeport.Take(port) && freeport.Free(port+10000) {
			return port
		}
	}
	t.Fatal("there are no free ports")
	return 0
}

// RedisSentinel is a primary with one replica, and the Sentinels that watch them under the name
// Master.
type RedisSentinel struct {
	Primary, Replica *RedisProc
	Sentinels        []*RedisProc
}

// Master is the Sentinels' name of the primary that they watch.
const Master = "tallygate"

// StartRedisSentinel starts them, and returns when the replica is in step and all Sentinels know it
// and each other. A primary that is gone is replaced after some 2 s.
func StartRedisSentinel(t testing.TB, sentinels int, args ...string) *RedisSentinel {
	t.Helper()
	// Whichever is the replica has a user of its own, so that a test can shut out it alone. Both know the
	// user from their start: either may be killed, and be the primary again later.
	args = append([]string{"--user", "replica", "on", ">replica", "~*", "&*", "+@all", "--masteruser", "replica", "--masterauth", "replica",
		"--repl-diskless-sync-delay", "0"}, args...)
	s := &RedisSentinel{Primary: StartRedis(t, args...)}
	host, port, _ := net.SplitHostPort(s.Primary.addr)
	s.Replica = StartRedis(t, append([]string{"--replicaof", host, port}, args...)...)
	s.Replica.until("the replica is in step", func(rdb *redis.Client) bool {
		info, _ := rdb.Info(context.Background(), "replication").Result()
		return strings.Contains(info, "master_link_status:up")
	})
	for range sentinels {
		p := &RedisProc{newProc(t, "redis.sh", fmt.Sprintf("REDIS_WATCH=%s %s %d", host, port, sentinels/2+1))}
		p.Start()
		s.Sentinels = append(s.Sentinels, p)
	}
	for _, p := range s.Sentinels {
		p.until("the Sentinels know what they watch", func(rdb *redis.Client) bool {
			state := redis.NewMapStringStringCmd(context.Background(), "SENTINEL", "MASTER", Master)
			if err := rdb.Process(context.Background(), state); err != nil {
				return false
			}
			m := state.Val()
			return m["num-slaves"] == "1" && m["num-other-sentinels"] == strconv.Itoa(sentinels-1) && m["flags"] == "master"
		})
	}
	return s
}

// Addrs are the Sentinels' addresses.
func (s *RedisSentinel) Addrs() (addrs []string) {
	for _, p := range s.Sentinels {
		addrs = append(addrs, p.addr)
	}
	return addrs
}

// CutReplica disconnects the replica from its primary for good: it becomes stale.
func (s *RedisSentinel) CutReplica() {
	s.Primary.t.Helper()
	s.Primary.do("ACL", "SETUSER", "replica", "off")
	s.Primary.do("CLIENT", "KILL", "TYPE", "replica")
	s.Replica.until("the replica is cut off", func(rdb *redis.Client) bool {
		info, _ := rdb.Info(context.Background(), "replication").Result()
		return strings.Contains(info, "master_link_status:down")
	})
}

// FailOver kills the primary, and returns when the replica has taken its place.
func (s *RedisSentinel) FailOver() {
	s.Primary.t.Helper()
	s.Primary.Kill()
	s.Replica.until("the replica has become the primary", func(rdb *redis.Client) bool {
		info, _ := rdb.Info(context.Background(), "replication").Result()
		return strings.Contains(info, "role:master")
	})
}

// do asks the server something that it must not refuse.
func (p *RedisProc) do(args ...any) {
	p.t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: p.addr})
	defer func() { _ = rdb.Close() }()
	if err := rdb.Do(context.Background(), args...).Err(); err != nil {
		p.t.Fatalf("%v: %v", args, err)
	}
}

func (p *RedisProc) until(what string, ok func(*redis.Client) bool) {
	p.t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: p.addr})
	defer func() { _ = rdb.Close() }()
	for end := time.Now().Add(time.Minute); !ok(rdb); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("after a minute it is still not so that %s", what)
		}
	}
}
