package blocklist

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/publish"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

// TestAFeedOfAnotherNumberOfShardsRefuses: publishers had two and a feed one. Half of the blocked
// passed, and the table was ready and seemed a second behind.
func TestAFeedOfAnotherNumberOfShardsRefuses(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka := rig.NewBroker(t, 2)
		p, _ := startPublisher(t, kafka, client, func(c *publish.Config) { c.Partitions, c.Shards = 2, 2 })
		for partition := range int32(2) {
			p.Own(partition)
			first, next, offered := kafka.Write(partition, rig.Record(rig.Block("u", 1, time.Hour)))
			p.Offer(partition, first, next, offered)
		}
		right := rig.NewMemory()
		ok, _ := startFeed(t, client, right, func(c *FeedConfig) { c.Shards = 2 })
		testrun.Eventually(t, "the feed of two shards follows", func() bool { return ok.Stats().Snapshots == 2 && right.Has("uid=u|r") })
		for _, shards := range []int{1, 3} {
			wrong := rig.NewMemory()
			feed, stop := startFeed(t, client, wrong, func(c *FeedConfig) { c.Shards = shards })
			testrun.Eventually(t, "it refuses", func() bool { return errors.Is(feed.Refused(), ErrShards) })
			s := feed.Stats()
			if text := s.Refused.Error(); !strings.Contains(text, "says 2") || !s.Failing || s.Errors[ErrorShards] == 0 {
				t.Errorf("a feed of %d shards: %s, %+v", shards, text, s)
			}
			if stop(); wrong.Replaced() > 0 || len(wrong.Text()) > 0 {
				t.Errorf("a feed of %d shards took a snapshot", shards)
			}
		}
		if err := ok.Refused(); err != nil {
			t.Error(err)
		}
	})
}

// TestABlocklistThatDoesNotSayItsShards was written by an older program: it is taken as it is until
// a publisher says how many there are.
func TestABlocklistThatDoesNotSayItsShards(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink, k := rig.NewBroker(t, 1), rig.NewMemory(), layout.KeysOf("tallygate", 0)
		p, stop := startPublisher(t, kafka, client, nil)
		p.Own(0)
		rig.Offer(p, kafka, rig.Record(rig.Block("u", 1, time.Hour)))
		testrun.Eventually(t, "it is published, and complete", func() bool {
			m, found, err := layout.ReadMeta(t.Context(), client, k)
			return err == nil && found && m.Shards == 1 && m.Applied > 0 && client.HExists(t.Context(), k.Verdicts, "uid=u|r").Val()
		})
		stop()
		client.HDel(t.Context(), k.Verdicts, layout.MetaShards)
		feed, _ := startFeed(t, client, sink, nil)
		testrun.Eventually(t, "the feed follows", func() bool { return sink.Has("uid=u|r") && feed.Refused() == nil })
		next, _ := startPublisher(t, kafka, client, nil)
		next.Own(0)
		testrun.Eventually(t, "it says so", func() bool { return client.HGet(t.Context(), k.Verdicts, layout.MetaShards).Val() == "1" })
	})
}

// TestAFeedWithMoreShardsThanItsTable panicked when the first heartbeat of the second shard came.
func TestAFeedWithMoreShardsThanItsTable(t *testing.T) {
	for tableShards, feedShards := range map[int]int{1: 2, 2: 1} {
		table, err := enforce.NewTable(enforce.Config{Shards: tableShards})
		if err != nil {
			t.Fatal(err)
		}
		feed, err := NewFeed(FeedConfig{Redis: rig.Dial(t, "127.0.0.1:1"), Shards: feedShards, Logger: rig.Quiet()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := feed.Run(ctx, table); err == nil || !strings.Contains(err.Error(), "shards") {
			t.Errorf("%d and %d: %v", feedShards, tableShards, err)
		}
	}
}
