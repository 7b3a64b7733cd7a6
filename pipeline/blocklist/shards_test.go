package blocklist

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/enforce"
)

// TestAFeedOfAnotherNumberOfShardsRefuses: publishers had two and a feed one. Half of the blocked passed, and the table was ready and
// seemed a second behind.
func TestAFeedOfAnotherNumberOfShardsRefuses(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka := newBroker(t, 2)
		p, _ := kafka.publisher(client, func(c *PublisherConfig) { c.Partitions, c.Shards = 2, 2 })
		for partition := range int32(2) {
			p.Own(partition)
			first, next, offered := kafka.write(partition, record(block("u", 1, time.Hour)))
			p.Offer(partition, first, next, offered)
		}
		right := newMemory()
		ok, _ := startFeed(t, client, right, func(c *FeedConfig) { c.Shards = 2 })
		eventually(t, "the feed of two shards follows", func() bool { return ok.Stats().Snapshots == 2 && right.has("uid=u|r") })
		for _, shards := range []int{1, 3} {
			wrong := newMemory()
			feed, stop := startFeed(t, client, wrong, func(c *FeedConfig) { c.Shards = shards })
			eventually(t, "it refuses", func() bool { return errors.Is(feed.Refused(), ErrShards) })
			s := feed.Stats()
			if text := s.Refused.Error(); !strings.Contains(text, "there are 2") || !s.Failing || s.Errors[TroubleShards] == 0 {
				t.Errorf("a feed of %d shards: %s, %+v", shards, text, s)
			}
			if stop(); wrong.replaced > 0 || len(wrong.text()) > 0 {
				t.Errorf("a feed of %d shards took a snapshot", shards)
			}
		}
		if err := ok.Refused(); err != nil {
			t.Error(err)
		}
	})
}

// TestABlocklistThatDoesNotSayItsShards was written by an older program: it is taken as it is until a publisher says how many there are.
func TestABlocklistThatDoesNotSayItsShards(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink, k := newBroker(t, 1), newMemory(), shardKeys("tallygate", 0)
		p, stop := kafka.publisher(client, nil)
		p.Own(0)
		offer(p, kafka, record(block("u", 1, time.Hour)))
		eventually(t, "it is published, and complete", func() bool {
			m, found, err := readMeta(t.Context(), client, k)
			return err == nil && found && m.shards == 1 && m.applied > 0 && client.HExists(t.Context(), k.verdicts, "uid=u|r").Val()
		})
		stop()
		client.HDel(t.Context(), k.verdicts, metaShards)
		feed, _ := startFeed(t, client, sink, nil)
		eventually(t, "the feed follows", func() bool { return sink.has("uid=u|r") && feed.Refused() == nil })
		next, _ := kafka.publisher(client, nil)
		next.Own(0)
		eventually(t, "it says so", func() bool { return client.HGet(t.Context(), k.verdicts, metaShards).Val() == "1" })
	})
}

// TestAPublisherOfAnotherNumberOfShardsRefuses at its start, and writes nothing when it finds out later.
func TestAPublisherOfAnotherNumberOfShardsRefuses(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, k := newBroker(t, 2), shardKeys("tallygate", 0)
		two := func(c *PublisherConfig) { c.Partitions, c.Shards = 2, 2 }
		one := func(c *PublisherConfig) { c.Partitions = 2 }
		p, stop := kafka.publisher(client, two)
		p.Own(0)
		eventually(t, "there are two", func() bool { return client.HGet(t.Context(), k.verdicts, metaShards).Val() == "2" })
		stop()
		other, err := NewPublisher(PublisherConfig{Redis: client, Kafka: kafka.addrs, Partitions: 2, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Run(t.Context()); !errors.Is(err, ErrShards) || !strings.Contains(err.Error(), "there are 2, and this program was told 1") {
			t.Errorf("at the start: %v", err)
		}
		client.FlushAll(t.Context())
		late, _ := kafka.publisher(client, one) // nothing is there yet
		eventually(t, "it runs", func() bool {
			late.Own(1)
			return len(late.Stats().Partitions) == 1 && late.Stats().Partitions[0].Applies > 0
		})
		// Another program's, in one command: between a flush and its first write this one would be there again.
		if err := client.HSet(t.Context(), k.verdicts, metaShards, 2).Err(); err != nil {
			t.Fatal(err)
		}
		held := client.HGetAll(t.Context(), k.verdicts).Val()
		eventually(t, "it says why it is stuck", func() bool { return late.Stats().Errors[TroubleShards] > 0 && late.Stats().Failing })
		if now := client.HGetAll(t.Context(), k.verdicts).Val(); len(now) != len(held) || now[metaN] != held[metaN] {
			t.Errorf("it wrote: %v, and there was %v", now, held)
		}
	})
}

// TestAFeedWithMoreShardsThanItsTable panicked when the first heartbeat of the second shard came.
func TestAFeedWithMoreShardsThanItsTable(t *testing.T) {
	for tableShards, feedShards := range map[int]int{1: 2, 2: 1} {
		table, err := enforce.NewTable(enforce.Config{Shards: tableShards})
		if err != nil {
			t.Fatal(err)
		}
		feed, err := NewFeed(FeedConfig{Redis: dial(t, "127.0.0.1:1"), Shards: feedShards, Logger: quiet()})
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
