package blocklist

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/publish"
)

// follower is a feed as this suite knows it.
type follower interface {
	Run(ctx context.Context, sink Sink) error
}

type feedMaker func(redis.UniversalClient) (follower, error)

func quickFeed(client redis.UniversalClient) (follower, error) {
	return NewFeed(FeedConfig{Redis: client, Shards: stageShards, Heartbeat: 50 * time.Millisecond,
		Block: 50 * time.Millisecond, Jitter: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
}

// TestConformance tells what any feed must do, on each shape of Redis.
func TestConformance(t *testing.T) {
	for _, shape := range shapes {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel() // they wait more than they work
			dial := shape.open(t)
			for _, story := range conformance {
				t.Run(story.name, func(t *testing.T) {
					dial := dial
					if shape.name == "miniredis" { // a server for each costs nothing
						t.Parallel()
						dial = shape.open(t)
					}
					s := newStage(t, dial)
					story.tell(s, quickFeed)
					s.inStep("at the end")
				})
			}
		})
	}
}

var conformance = []struct {
	name string
	tell func(s *stage, feed feedMaker)
}{
	{"a snapshot and then changes", func(s *stage, feed feedMaker) {
		s.publisher(nil)
		s.block(rig.UIDs("before", 50)...)
		s.clear("before1")
		s.remove("before2", "never-there")
		s.feed(feed)
		s.inStep("after the snapshot")
		s.block(rig.UIDs("after", 50)...)
		s.clear("before3", "after3")
		s.block("before3", "before4")
		s.remove("before5", "after5", "after5")
	}},
	{"it is there before anything was published", func(s *stage, feed feedMaker) {
		s.feed(feed)
		s.block("written before there was a publisher")
		s.publisher(nil)
	}},
	{"a gap in the stream", func(s *stage, feed feedMaker) {
		s.publisher(nil)
		s.feed(feed)
		s.block("first")
		s.inStep("before the gap")
		s.whileBusy(func() {
			s.block(rig.UIDs("unseen", 20)...)
			s.clear("first")
			for shard := range stageShards {
				k := layout.KeysOf("tallygate", shard)
				s.eventually("the changes are in Redis", func() bool { return s.redis.XLen(s.t.Context(), k.Changes).Val() > 4 })
				entries, err := s.redis.XRevRangeN(s.t.Context(), k.Changes, "+", "-", 4).Result()
				if err != nil {
					s.t.Fatal(err)
				}
				s.redis.XDel(s.t.Context(), k.Changes, entries[2].ID, entries[3].ID)
			}
		})
	}},
	{"the stream was trimmed", func(s *stage, feed feedMaker) {
		s.publisher(nil)
		s.feed(feed)
		s.block(rig.UIDs("old", 10)...)
		s.inStep("before")
		s.whileBusy(func() {
			s.block(rig.UIDs("unseen", 30)...)
			s.clear("old1")
			s.remove("old2")
			s.reached()
			for shard := range stageShards {
				s.redis.XTrimMaxLen(s.t.Context(), layout.KeysOf("tallygate", shard).Changes, 2)
			}
		})
	}},
	{"another epoch", func(s *stage, feed feedMaker) {
		s.publisher(nil)
		s.feed(feed)
		s.block(rig.UIDs("kept", 30)...)
		s.inStep("before")
		for range 3 { // the meta goes with the verdicts, and the stream stays
			s.redis.Del(s.t.Context(), layout.KeysOf("tallygate", 0).Verdicts)
			s.block("more")
			s.inStep("in the new epoch")
		}
	}},
	{"everything is flushed", func(s *stage, feed feedMaker) {
		s.publisher(nil)
		s.feed(feed)
		s.block(rig.UIDs("kept", 200)...)
		s.inStep("before")
		s.flush()
		s.block(rig.UIDs("meanwhile", 20)...)
		s.remove("kept1")
		s.inStep("when it is filled again")
		s.flush()
	}},
	{"a failover to a replica that has other changes under the same numbers", func(s *stage, feed feedMaker) {
		_, stop := s.publisher(nil)
		s.feed(feed)
		s.block(rig.UIDs("both", 20)...)
		s.inStep("before")
		failOver := s.snapshotOfRedis() // what the replica has
		s.block(rig.UIDs("lost with the primary", 20)...)
		s.remove("both1")
		s.inStep("before the failover")
		stop()
		failOver()
		s.block(rig.UIDs("other", 60)...) // as many as were lost, and more
		s.remove("both2")
		s.publisher(nil)
	}},
	{"the same, and then silence", func(s *stage, feed feedMaker) {
		_, stop := s.publisher(nil)
		s.feed(feed)
		s.block(rig.UIDs("both", 20)...)
		s.inStep("before")
		failOver := s.snapshotOfRedis()
		s.block(rig.UIDs("lost with the primary", 20)...)
		s.inStep("before the failover")
		stop()
		failOver()
		s.publisher(nil)
	}},
	{"a restored backup without a publisher", func(s *stage, feed feedMaker) {
		_, stop := s.publisher(nil)
		s.feed(feed)
		s.block(rig.UIDs("both", 20)...)
		s.inStep("before")
		restore := s.snapshotOfRedis()
		s.block(rig.UIDs("not in the backup", 20)...)
		s.inStep("before it was restored")
		stop()
		restore()
		s.settle()
		if got, want := s.sink.Text(), rig.Text(s.truth); !slices.Equal(got, want) {
			s.t.Errorf("%d are held, want %d: Redis doesn't know of some yet", len(got), len(want))
		}
		s.publisher(nil)
	}},
	{"a slow consumer", func(s *stage, feed feedMaker) {
		s.publisher(func(c *publish.Config) { c.StreamLength = 20 })
		s.feed(feed)
		for i := range 5 {
			s.whileBusy(func() {
				s.block(rig.UIDs("a", 80)...)
				s.clear(rig.UIDs("a", 10*i)...)
				s.reached()
			})
		}
	}},
	{"a connection that is half open", func(s *stage, feed feedMaker) {
		s.publisher(nil)
		s.feed(feed)
		s.block("before")
		s.inStep("before")
		s.network.Stall()
		s.network.Heal() // new connections work, old ones are broken
		s.block("after")
	}},
	{"nothing comes through, and then it does", func(s *stage, feed feedMaker) {
		s.publisher(func(c *publish.Config) { c.StreamLength = 100 })
		s.feed(feed)
		s.block(rig.UIDs("before", 20)...)
		s.inStep("before")
		for _, fault := range []func(){s.network.Cut, s.network.Stall} {
			fault()
			s.block(rig.UIDs("meanwhile", 150)...) // longer than the stream
			s.clear("before1", "meanwhile1")
			s.remove("before2")
			s.reached()
			if !s.sink.Has("uid=before3|r") {
				s.t.Error("a block is gone while Redis is away")
			}
			s.network.Heal()
			s.inStep("when it comes through again")
		}
	}},
	{"a slow network", func(s *stage, feed feedMaker) {
		s.publisher(nil)
		s.network.Slow(20 * time.Millisecond)
		s.feed(feed)
		s.block(rig.UIDs("a", 50)...)
		s.clear(rig.UIDs("a", 20)...)
	}},
	{"the publisher is dead", func(s *stage, feed feedMaker) {
		_, stop := s.publisher(nil)
		s.feed(feed)
		s.block("before")
		s.inStep("before")
		stop()
		dead := event.FromTime(time.Now())
		s.settle()
		for shard := range stageShards {
			if got := s.sink.AppliedUpTo(shard); got > dead {
				s.t.Errorf("shard %d is said to be in step up to %v after the publisher's end", shard, (got - dead).Duration())
			}
		}
		s.block("written to the topic alone")
		s.publisher(nil)
	}},
	{"publishers twice, and a paused one", func(s *stage, feed feedMaker) {
		paused, stop := s.publisher(nil)
		s.feed(feed)
		s.block(rig.UIDs("a", 20)...)
		s.inStep("with one")
		s.publisher(nil)
		s.block(rig.UIDs("b", 50)...)
		s.clear(rig.UIDs("a", 5)...)
		s.inStep("with both")
		stop()
		s.clear(rig.UIDs("b", 50)...)
		s.inStep("without the first")
		s.pubs = append(s.pubs, paused) // it wakes up with what it had, and its offers are old
		testrun.Start(s.t, paused.Run)
		s.block(rig.UIDs("c", 50)...)
	}},
}

// whileBusy holds up the consumer while do is done.
func (s *stage) whileBusy(do func()) {
	s.sink.gate.Lock()
	defer s.sink.gate.Unlock()
	do()
}

// reached waits until all that was published is in Redis.
func (s *stage) reached() {
	s.t.Helper()
	s.eventually("all is in Redis", func() bool {
		for _, p := range s.pubs {
			for _, partition := range p.Stats().Partitions {
				if partition.Lag != 0 || partition.Reached != s.kafka.Ends[partition.Partition] {
					return false
				}
			}
		}
		return true
	})
}

func (s *stage) eventually(what string, ok func() bool) {
	s.t.Helper()
	testrun.Eventually(s.t, what, ok)
}

// settle waits until a feed would have noticed whatever there is to notice.
func (s *stage) settle() {
	s.t.Helper()
	time.Sleep(20 * 50 * time.Millisecond) // twenty of its heartbeats
}
