package blocklist

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/publish"
	"github.com/tallygate/tallygate/verdict"
)

// dialer makes a client of one Redis. With a network it connects through that, and notices soon
// when it hears nothing.
type dialer func(t testing.TB, network *servers.Network) redis.UniversalClient

const impatience = 500 * time.Millisecond // of clients that connect through a network with faults

// shapes are the kinds of Redis that a blocklist may live in.
var shapes = []struct {
	name string
	open func(t *testing.T) dialer
}{
	{"miniredis", func(t *testing.T) dialer {
		servers.Embedded(t)
		return single(miniredis.RunT(t).Addr())
	}},
	{"redis", func(t *testing.T) dialer { return single(servers.StartRedis(t).Addr()) }},
	{"cluster", func(t *testing.T) dialer {
		addrs := servers.StartRedisCluster(t, 3).Addrs()
		return func(t testing.TB, network *servers.Network) redis.UniversalClient {
			o := &redis.ClusterOptions{Addrs: addrs, MaintNotificationsConfig: rig.NoNotices}
			if network != nil {
				o.Dialer, o.ReadTimeout, o.WriteTimeout = network.Dial, impatience, impatience
			}
			return closed(t, redis.NewClusterClient(o))
		}
	}},
	{"sentinel", func(t *testing.T) dialer { return watched(servers.StartRedisSentinel(t, 1).Addrs()) }},
}

func single(addr string) dialer {
	return func(t testing.TB, network *servers.Network) redis.UniversalClient {
		o := &redis.Options{Addr: addr, MaintNotificationsConfig: rig.NoNotices}
		if network != nil {
			o.Dialer, o.ReadTimeout, o.WriteTimeout = network.Dial, impatience, impatience
		}
		return closed(t, redis.NewClient(o))
	}
}

func watched(sentinels []string) dialer {
	return func(t testing.TB, network *servers.Network) redis.UniversalClient {
		o := &redis.FailoverOptions{MasterName: servers.Master, SentinelAddrs: sentinels}
		if network != nil {
			o.Dialer, o.ReadTimeout, o.WriteTimeout = network.Dial, impatience, impatience
		}
		return closed(t, redis.NewFailoverClient(o))
	}
}

func closed(t testing.TB, client redis.UniversalClient) redis.UniversalClient {
	t.Cleanup(func() { _ = client.Close() })
	return client
}

const (
	stagePartitions = 4
	stageShards     = 2
)

// stage is a blocklist of two shards with its publishers, and an enforcer that follows it through a
// network.
type stage struct {
	t       *testing.T
	kafka   *rig.Broker
	redis   redis.UniversalClient // not through the network
	network *servers.Network
	through redis.UniversalClient
	pubs    []*publish.Publisher // all are told of every verdict
	sink    *gated
	watch   *watch // nil: no checks

	mu    sync.Mutex
	truth map[string]verdict.Verdict // what must be held
	ended map[string]bool            // what was cleared or removed: it may go
	seq   int64

	published int // verdicts and removals so far
}

func newStage(t *testing.T, dial dialer) *stage {
	s := &stage{t: t, kafka: rig.NewBroker(t, stagePartitions), redis: dial(t, nil), network: servers.NewNetwork(t),
		sink: &gated{Memory: rig.NewMemory()}, truth: map[string]verdict.Verdict{}, ended: map[string]bool{}}
	s.through = dial(t, s.network)
	s.flush()
	return s
}

func (s *stage) flush() {
	s.t.Helper()
	err := layout.EachPrimary(context.Background(), s.redis, func(ctx context.Context, c redis.Cmdable) error { return c.FlushAll(ctx).Err() })
	if err != nil {
		s.t.Fatal(err)
	}
}

// publisher adds a publisher of all partitions; the returned function stops it.
func (s *stage) publisher(change func(*publish.Config)) (*publish.Publisher, func()) {
	s.t.Helper()
	p, stop := startPublisher(s.t, s.kafka, s.redis, func(c *publish.Config) {
		c.Partitions, c.Shards = stagePartitions, stageShards
		if change != nil {
			change(c)
		}
	})
	for partition := range int32(stagePartitions) {
		p.Own(partition)
	}
	s.pubs = append(s.pubs, p)
	return p, func() {
		stop()
		s.pubs = slices.DeleteFunc(s.pubs, func(other *publish.Publisher) bool { return other == p })
	}
}

func (s *stage) feed(newFeed feedMaker) {
	s.t.Helper()
	run, err := newFeed(s.through)
	if err != nil {
		s.t.Fatal(err)
	}
	var sink Sink = s.sink
	if s.watch != nil {
		sink = both{s.sink, s.watch.table}
	}
	testrun.Start(s.t, func(ctx context.Context) error { return run.Run(ctx, sink) })
}

func partitionOf(uid string) (partition int32) {
	for _, c := range []byte(uid) {
		partition = (partition*31 + int32(c)) % stagePartitions
	}
	return partition
}

// block, clear and remove publish.
func (s *stage) block(uids ...string) {
	for _, uid := range uids {
		s.seq++
		s.publish(uid, rig.Block(uid, s.seq, time.Hour), false)
	}
}

func (s *stage) clear(uids ...string) {
	for _, uid := range uids {
		s.seq++
		s.publish(uid, rig.Clearing(uid, s.seq), false)
	}
}

func (s *stage) remove(uids ...string) {
	for _, uid := range uids {
		s.publish(uid, rig.Block(uid, s.seq, 0), true)
	}
}

func (s *stage) publish(uid string, v verdict.Verdict, removed bool) {
	s.t.Helper()
	r, key := rig.Record(v), string(verdict.AppendRecordKey(nil, &v))
	if removed {
		r = rig.Tombstone(v)
	}
	s.mu.Lock()
	s.published++
	if removed || v.State == verdict.Clear {
		delete(s.truth, key)
		s.ended[key] = true
	} else {
		s.truth[key] = v
	}
	s.mu.Unlock()
	if s.watch != nil {
		s.watch.publish(uid, v, removed || v.State == verdict.Clear)
	}
	partition := partitionOf(uid)
	first, next, offered := s.kafka.Write(partition, r)
	for _, p := range s.pubs {
		p.Offer(partition, first, next, offered)
	}
}

// inStep waits until the enforcer has what was published, and says that it is up to now.
func (s *stage) inStep(when string) {
	s.t.Helper()
	now := event.FromTime(time.Now())
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("held %d, want %d; publishers %+v", len(s.sink.Text()), len(s.truth), s.stats())
		}
	})
	testrun.Eventually(s.t, "the enforcer is in step "+when, func() bool {
		for shard := range stageShards {
			if s.sink.AppliedUpTo(shard) <= now {
				return false
			}
		}
		return slices.Equal(rig.Text(alive(s.sink.Held())), rig.Text(alive(s.truth)))
	})
	s.nothingWasLost()
	s.compareRedis()
}

// alive leaves out what ends soon, or has ended.
func alive(held map[string]verdict.Verdict) map[string]verdict.Verdict {
	soon := event.FromTime(time.Now().Add(5 * time.Minute))
	left := maps.Clone(held)
	maps.DeleteFunc(left, func(_ string, v verdict.Verdict) bool { return v.Until < soon })
	return left
}

func (s *stage) stats() (all []publish.Stats) {
	for _, p := range s.pubs {
		all = append(all, p.Stats())
	}
	return all
}

// nothingWasLost checks that the enforcer at no time gave up a block that had not been ended.
func (s *stage) nothingWasLost() {
	s.t.Helper()
	for _, key := range s.sink.Dropped() {
		if _, alive := alive(s.truth)[key]; !s.ended[key] && alive {
			s.t.Errorf("%s was given up, though it had not been ended", key)
		}
	}
}

// compareRedis compares the hashes with what was published. Clears stay there for a while.
func (s *stage) compareRedis() {
	s.t.Helper()
	got := map[string]verdict.Verdict{}
	for shard := range stageShards {
		fields, err := s.redis.HGetAll(s.t.Context(), layout.KeysOf("tallygate", shard).Verdicts).Result()
		if err != nil {
			s.t.Fatal(err)
		}
		for name, value := range fields {
			if strings.HasPrefix(name, layout.MetaPrefix) {
				continue
			}
			v, err := verdict.Parse([]byte(value))
			if err != nil {
				s.t.Fatal(err)
			}
			if v.State != verdict.Clear {
				got[name] = v
			}
		}
	}
	if !slices.Equal(rig.Text(alive(got)), rig.Text(alive(s.truth))) {
		s.t.Errorf("Redis holds %d blocks that are not the %d published", len(got), len(s.truth))
	}
}

// redisHas reports whether the hash of the uid's shard has its block.
func (s *stage) redisHas(uid string) bool {
	s.t.Helper()
	v := rig.Block(uid, 0, 0)
	shard := int(partitionOf(uid)) % stageShards
	has, err := s.redis.HExists(s.t.Context(), layout.KeysOf("tallygate", shard).Verdicts, string(verdict.AppendRecordKey(nil, &v))).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return has
}

// snapshotOfRedis notes what all shards hold; the returned function puts it back.
func (s *stage) snapshotOfRedis() (restore func()) {
	s.t.Helper()
	ctx := context.Background()
	var puts []func(redis.Pipeliner)
	for shard := range stageShards {
		k := layout.KeysOf("tallygate", shard)
		hash, err := s.redis.HGetAll(ctx, k.Verdicts).Result()
		if err != nil {
			s.t.Fatal(err)
		}
		scores, err := s.redis.ZRangeWithScores(ctx, k.Expiry, 0, -1).Result()
		if err != nil {
			s.t.Fatal(err)
		}
		entries, err := s.redis.XRange(ctx, k.Changes, "-", "+").Result()
		if err != nil {
			s.t.Fatal(err)
		}
		puts = append(puts, func(p redis.Pipeliner) {
			p.Del(ctx, k.Verdicts, k.Expiry, k.Changes)
			if len(hash) > 0 {
				p.HSet(ctx, k.Verdicts, maps.Clone(hash))
			}
			if len(scores) > 0 {
				p.ZAdd(ctx, k.Expiry, scores...)
			}
			for _, e := range entries {
				p.XAdd(ctx, &redis.XAddArgs{Stream: k.Changes, ID: e.ID, Values: e.Values})
			}
		})
	}
	return func() {
		s.t.Helper()
		for _, put := range puts { // a transaction for each shard, since each has a slot of its own
			if _, err := s.redis.TxPipelined(ctx, func(p redis.Pipeliner) error { put(p); return nil }); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}
