package blocklist

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/publish"
	"github.com/tallygate/tallygate/verdict"
)

// gated is a Sink that a test can hold up.
type gated struct {
	*rig.Memory
	gate sync.Mutex
}

func (g *gated) Apply(shard int, changes []verdict.Verdict) {
	g.gate.Lock()
	defer g.gate.Unlock()
	g.Memory.Apply(shard, changes)
}

func TestAFeedThatTheStreamWasTrimmedUnderTakesASnapshot(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := rig.NewBroker(t, 1), rig.NewMemory()
		p, _ := startPublisher(t, kafka, client, nil)
		p.Own(0)
		var gate sync.Mutex
		var held atomic.Bool
		client.AddHook(&every{name: "xread", do: func() {
			held.Store(!gate.TryLock())
			if held.Load() {
				gate.Lock()
			}
			gate.Unlock()
		}})
		feed, _ := startFeed(t, client, sink, nil)
		rig.Offer(p, kafka, rig.Record(rig.Block("0", 1, time.Hour)))
		testrun.Eventually(t, "the feed follows", func() bool { return sink.Has("uid=0|r") && sink.Replaced() > 0 })

		gate.Lock() // the service doesn't get to read
		// A read that is under way would bring what is written now, all of it if the publisher has
		// gathered it; and then nothing is lost.
		testrun.Eventually(t, "the next read waits", held.Load)
		before := feed.Stats()
		for i := range 100 {
			rig.Offer(p, kafka, rig.Record(rig.Block(fmt.Sprint(i), int64(i+2), time.Hour)))
		}
		testrun.Eventually(t, "all are in Redis", func() bool { return p.Stats().Partitions[0].Reached == 101 })
		if err := client.XTrimMaxLen(t.Context(), "{tallygate:0}:changes", 3).Err(); err != nil {
			t.Fatal(err)
		}
		gate.Unlock()

		testrun.Eventually(t, "all are blocked", func() bool { return len(sink.Text()) == 100 })
		testrun.Eventually(t, "another snapshot was taken", func() bool {
			now := feed.Stats()
			return now.Snapshots > before.Snapshots && now.Lost > before.Lost
		})
	})
}

func TestSnapshotsWhileChangesFlow(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka := rig.NewBroker(t, 1)
		p, _ := startPublisher(t, kafka, client, nil)
		p.Own(0)
		model := rig.NewMemory()
		offerAll := func(verdicts []verdict.Verdict) {
			records := make([]publish.Record, len(verdicts))
			for i, v := range verdicts {
				records[i] = rig.Record(v)
			}
			rig.Offer(p, kafka, records...)
			model.Apply(0, verdicts)
		}
		size := rig.Most(t, 10_000)
		var all []verdict.Verdict
		for i := range size {
			all = append(all, rig.Block(fmt.Sprint(i), 0, time.Hour))
		}
		offerAll(all)

		var sinks []*rig.Memory
		for i := range 60 {
			if i%10 == 0 {
				sinks = append(sinks, rig.NewMemory())
				startFeed(t, client, sinks[len(sinks)-1], nil)
			}
			var some []verdict.Verdict
			for j := range 50 {
				uid := fmt.Sprint((i*997 + j*31) % size)
				if v := rig.Block(uid, int64(i+1), time.Hour); j%3 == 0 {
					some = append(some, rig.Clearing(uid, v.Seq))
				} else {
					some = append(some, v)
				}
			}
			offerAll(some)
		}
		want := model.Text()
		for i, sink := range sinks {
			testrun.Eventually(t, fmt.Sprintf("feed %d has what was published", i), func() bool { return slices.Equal(sink.Text(), want) })
		}
	})
}

// TestARedisThatWasRestoredFromABackup checks that a feed never gives up a block because Redis
// doesn't know of it yet.
func TestARedisThatWasRestoredFromABackup(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := rig.NewBroker(t, 1), rig.NewMemory()
		p, stop := startPublisher(t, kafka, client, nil)
		p.Own(0)
		feed, _ := startFeed(t, client, sink, nil)
		rig.Offer(p, kafka, rig.Record(rig.Block("old", 1, time.Hour)))
		testrun.Eventually(t, "it is blocked", func() bool { return sink.Has("uid=old|r") })
		k := layout.KeysOf("tallygate", 0)
		backup, err := client.HGetAll(t.Context(), k.Verdicts).Result()
		if err != nil {
			t.Fatal(err)
		}
		rig.Offer(p, kafka, rig.Record(rig.Block("new", 1, time.Hour)))
		testrun.Eventually(t, "it is blocked, too", func() bool { return sink.Has("uid=new|r") })

		stop() // no publisher repairs it for now
		flush := func() {
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		flush()
		client.HSet(t.Context(), k.Verdicts, maps.Clone(backup))
		testrun.Eventually(t, "the feed has looked", func() bool { return feed.Stats().Partial > 0 })
		if got := len(sink.Text()); got != 2 {
			t.Errorf("%d are blocked, want both", got)
		}
		p2, _ := startPublisher(t, kafka, client, nil)
		p2.Own(0)
		testrun.Eventually(t, "a complete snapshot was taken", func() bool { return feed.Stats().Snapshots == 2 })
		if got := len(sink.Text()); got != 2 || len(sink.Dropped()) > 0 {
			t.Errorf("%d are blocked, want both; dropped %v meanwhile", got, sink.Dropped())
		}
	})
}

func TestAFeedWaitsUntilEveryPartitionWasFilled(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := rig.NewBroker(t, 2), rig.NewMemory()
		kafka.Write(0, rig.Record(rig.Block("0", 1, time.Hour)))
		kafka.Write(1, rig.Record(rig.Block("1", 1, time.Hour)))
		p, _ := startPublisher(t, kafka, client, func(c *publish.Config) { c.Partitions = 2 })
		feed, _ := startFeed(t, client, sink, nil)
		p.Own(0)
		testrun.Eventually(t, "what there is is enforced", func() bool { return sink.Has("uid=0|r") })
		if s := feed.Stats(); s.Snapshots != 0 || sink.AppliedUpTo(0) != 0 {
			t.Errorf("complete snapshots %d, applied %d, want none before partition 1 has a publisher", s.Snapshots, sink.AppliedUpTo(0))
		}
		p.Own(1)
		testrun.Eventually(t, "the snapshot is complete", func() bool { return feed.Stats().Snapshots == 1 && sink.Has("uid=1|r") })
	})
}

func TestHeartbeatsSayWhatIsApplied(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := rig.NewBroker(t, 2), rig.NewMemory()
		a, stopA := startPublisher(t, kafka, client, func(c *publish.Config) { c.Partitions = 2 })
		b, _ := startPublisher(t, kafka, client, func(c *publish.Config) { c.Partitions = 2 })
		a.Own(0)
		b.Own(1)
		startFeed(t, client, sink, nil)
		begun := event.FromTime(time.Now())
		testrun.Eventually(t, "both are applied", func() bool { return sink.AppliedUpTo(0) > begun })
		stopA() // then the shard grows stale, though b goes on
		settled := event.FromTime(time.Now())
		testrun.Eventually(t, "heartbeats go on", func() bool {
			m, _, err := layout.ReadMeta(context.Background(), client, layout.KeysOf("tallygate", 0))
			s, _ := client.HGet(context.Background(), "{tallygate:0}:verdicts", layout.MetaApplied+":1").Int64()
			return err == nil && m.Applied > 0 && event.Micros(s) > settled+200*event.Millisecond
		})
		if got := sink.AppliedUpTo(0); got > settled {
			t.Errorf("applied up to %v after partition 0 lost its publisher at %v", got, settled)
		}
	})
}

// A server that takes requests on a connection and no longer answers, without closing it, is given
// up.
func TestAConnectionThatIsHalfOpen(t *testing.T) {
	addr, network := rig.RealRedis(t), servers.NewNetwork(t)
	through := redis.NewClient(&redis.Options{Addr: addr, Dialer: network.Dial, ReadTimeout: 300 * time.Millisecond, MaintNotificationsConfig: rig.NoNotices})
	t.Cleanup(func() { _ = through.Close() })
	kafka, sink := rig.NewBroker(t, 1), rig.NewMemory()
	p, _ := startPublisher(t, kafka, rig.Dial(t, addr), nil)
	p.Own(0)
	startFeed(t, through, sink, nil)
	rig.Offer(p, kafka, rig.Record(rig.Block("1", 1, time.Hour)))
	testrun.Eventually(t, "1 is blocked", func() bool { return sink.Has("uid=1|r") })
	network.DropReplies()
	rig.Offer(p, kafka, rig.Record(rig.Block("2", 1, time.Hour)))
	testrun.Eventually(t, "2 is blocked", func() bool { return sink.Has("uid=2|r") })
}
