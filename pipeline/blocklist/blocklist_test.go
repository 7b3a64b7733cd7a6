package blocklist

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/verdict"
)

func TestAnOfferedVerdictReachesTheEnforcer(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := newBroker(t, 1), newMemory()
		p, _ := kafka.publisher(client, nil)
		p.Own(0)
		startFeed(t, client, sink, nil)

		offer(p, kafka, fence(), record(block("42", 1, time.Hour)))
		eventually(t, "42 is blocked", func() bool { return sink.has("uid=42|r") })

		offer(p, kafka, record(clearing("42", 2)))
		eventually(t, "42 is cleared", func() bool { return !sink.has("uid=42|r") })

		before := sink.appliedUpTo(0)
		eventually(t, "heartbeats go on", func() bool { return sink.appliedUpTo(0) > before })
	})
}

func TestOnlyTheTopicIsNeeded(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := newBroker(t, 2), newMemory()
		kafka.write(0, fence(), record(block("before", 1, time.Hour)))
		kafka.publisher(client, func(c *PublisherConfig) { c.PublishOnly, c.Partitions, c.Shards = true, 2, 2 })
		startFeed(t, client, sink, func(c *FeedConfig) { c.Shards = 2 })
		eventually(t, "the old one is blocked", func() bool { return sink.has("uid=before|r") })

		kafka.write(1, record(block("after", 1, time.Hour)))
		eventually(t, "the new one is blocked", func() bool { return sink.has("uid=after|r") })
		kafka.write(1, tombstone(block("after", 1, time.Hour)))
		eventually(t, "a tombstone removes it", func() bool { return !sink.has("uid=after|r") })
	})
}

func TestAFlushedRedisIsFilledAgainAndNobodyGetsThrough(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := newBroker(t, 2), newMemory()
		var want []string
		size := most(t, 2000)
		for i := range size {
			v := block(fmt.Sprint(i), int64(i+1), time.Hour)
			kafka.write(int32(i%2), record(v))
			want = append(want, fmt.Sprintf("uid=%d|r seq %d until %d", i, i+1, v.Until))
		}
		slices.Sort(want)
		p, _ := kafka.publisher(client, func(c *PublisherConfig) { c.Partitions, c.BatchSize = 2, size/20 })
		p.Own(0)
		p.Own(1)
		startFeed(t, client, sink, nil)
		eventually(t, "all are blocked", func() bool { return slices.Equal(sink.text(), want) })

		for range 3 {
			before := replacements(sink)
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a complete snapshot was taken", func() bool { return replacements(sink) > before })
			if got := sink.text(); !slices.Equal(got, want) {
				t.Fatalf("after a flush %d verdicts are held, want %d", len(got), len(want))
			}
		}
		if len(sink.dropped) > 0 {
			t.Errorf("a snapshot that was not complete dropped %d verdicts, such as %s", len(sink.dropped), sink.dropped[0])
		}
	})
}

func replacements(m *memory) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.replaced
}

func TestPublishersCompete(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := newBroker(t, 1), newMemory()
		startFeed(t, client, sink, nil)
		a, stopA := kafka.publisher(client, nil)
		b, _ := kafka.publisher(client, nil)
		a.Own(0)
		b.Own(0)
		first := [3]any{}
		for i := range 20 { // both are told, as by an owner that doesn't know it was replaced
			from, to, records := kafka.write(0, record(block(fmt.Sprint(i), int64(i), time.Hour)))
			a.Offer(0, from, to, records)
			b.Offer(0, from, to, records)
			first = [3]any{from, to, records}
		}
		eventually(t, "all are blocked", func() bool { return len(sink.text()) == 20 })

		stopA() // paused
		p, next, r := kafka.write(0, record(block("0", 100, 2*time.Hour)))
		b.Offer(0, p, next, r)
		eventually(t, "the second goes on", func() bool { return seqOf(sink, "uid=0|r") == 100 })

		again, _ := kafka.publisher(client, nil) // wakes up with old offers
		again.Own(0)
		again.Offer(0, first[0].(int64), first[1].(int64), first[2].([]Record))
		eventually(t, "the old one has caught up", func() bool {
			s := again.Stats()
			return s.Partitions[0].Reached == next && s.Partitions[0].Applied > 0
		})
		if got := seqOf(sink, "uid=0|r"); got != 100 {
			t.Errorf("seq is %d after a publisher with old offers, want 100", got)
		}
	})
}

func seqOf(m *memory, key string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held[key].Seq
}

func TestOffersThatDontFitAreReadFromTheTopic(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := newBroker(t, 1), newMemory()
		p, _ := kafka.publisher(client, func(c *PublisherConfig) { c.Buffer = 1000 })
		p.Own(0)
		for i := range 300 {
			offer(p, kafka, record(block(fmt.Sprint(i), 1, time.Hour)), record(block(fmt.Sprint(i, "b"), 1, time.Hour)), fence())
		}
		startFeed(t, client, sink, nil)
		eventually(t, "all are blocked", func() bool { return len(sink.text()) == 600 })
		eventually(t, "nothing is left", func() bool { return p.Stats().Partitions[0].Lag == 0 })
	})
}

func TestAnOwnerLeavesAndReturns(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := newBroker(t, 1), newMemory()
		startFeed(t, client, sink, nil)
		p, _ := kafka.publisher(client, nil)
		p.Own(0)
		offer(p, kafka, record(block("1", 1, time.Hour)))
		eventually(t, "1 is blocked", func() bool { return sink.has("uid=1|r") })
		p.Disown(0)
		from, next, records := kafka.write(0, record(block("2", 1, time.Hour)))
		p.Offer(0, from, next, records)
		if len(p.Stats().Partitions) != 0 {
			t.Error("a partition that was given up is still published")
		}
		kafka.write(0, fence())
		p.Own(0)
		offer(p, kafka, record(block("3", 1, time.Hour)))
		eventually(t, "2 and 3 are blocked", func() bool { return sink.has("uid=2|r") && sink.has("uid=3|r") })
	})
}

func TestRedisComesBack(t *testing.T) {
	addr := realRedis(t)
	if client := dial(t, addr); client.Do(t.Context(), "CONFIG", "SET", "save", "").Err() != nil {
		t.Skip("this Redis can't be stopped by a test")
	}
	kafka, sink := newBroker(t, 1), newMemory()
	client := dial(t, addr)
	p, _ := kafka.publisher(client, nil)
	p.Own(0)
	startFeed(t, client, sink, nil)
	offer(p, kafka, record(block("1", 1, time.Hour)))
	eventually(t, "1 is blocked", func() bool { return sink.has("uid=1|r") })

	// All clients are thrown out while verdicts flow.
	for i := range 20 {
		offer(p, kafka, record(block(fmt.Sprint(i), int64(i+2), time.Hour)))
		if err := dial(t, addr).Do(context.Background(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all are blocked", func() bool { return len(sink.text()) == 20 })
}

func TestAPolicyThatEvictsIsRefused(t *testing.T) {
	addr := realRedis(t)
	client := dial(t, addr)
	if err := client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	defer client.ConfigSet(context.Background(), "maxmemory-policy", "noeviction")
	p, err := NewPublisher(PublisherConfig{Redis: client, Kafka: []string{"127.0.0.1:1"}, Partitions: 1, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context()); err == nil {
		t.Error("Run returned nil, want an error that names the policy")
	}
}

func TestNoticesHaveAKeyOfTheirOwn(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := newBroker(t, 1), newMemory()
		p, _ := kafka.publisher(client, nil)
		p.Own(0)
		startFeed(t, client, sink, nil)
		warn := block("1", 1, time.Hour)
		warn.State, warn.Step = verdict.Warn, "50%"
		offer(p, kafka, record(warn), record(block("1", 2, time.Hour)))
		eventually(t, "both are held", func() bool { return sink.has("uid=1|r") && sink.has("uid=1|r|warn") })
	})
}

func TestConfigReportsAllErrors(t *testing.T) {
	_, err := NewPublisher(PublisherConfig{Prefix: "{x}"})
	for _, want := range []string{"Redis is required", "Kafka is required", "Partitions is 0", "without braces"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %q doesn't say %q", err, want)
		}
	}
	if _, err := NewFeed(FeedConfig{Block: time.Minute, Redis: dial(t, "127.0.0.1:1")}); err == nil || !strings.Contains(err.Error(), "ReadTimeout") {
		t.Errorf("error %v, want one about the ReadTimeout", err)
	}
	replicas := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadOnly: true})
	defer replicas.Close()
	if _, err := NewFeed(FeedConfig{Redis: replicas}); err == nil || !strings.Contains(err.Error(), "primaries only") {
		t.Errorf("error %v, want one about replicas", err)
	}
}

// offer writes records to partition 0 as its owner and hands them to the publisher.
func offer(p *Publisher, kafka *broker, records ...Record) {
	first, next, offered := kafka.write(0, records...)
	p.Offer(0, first, next, offered)
}

// TestWhatIsNoVerdictIsSaidOnce: a client that fills the topic, or Redis, with anything at all does not fill the log.
func TestWhatIsNoVerdictIsSaidOnce(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := newBroker(t, 1), newMemory()
		var writing, following lines
		p, _ := kafka.publisher(client, func(c *PublisherConfig) { c.Logger = writing.logger() })
		p.Own(0)
		for i := range 100 {
			offer(p, kafka, Record{Key: fmt.Append(nil, "uid=", i, "|r"), Value: []byte("{")})
		}
		offer(p, kafka, record(block("a", 1, time.Hour)))
		eventually(t, "the verdict behind them is in Redis", func() bool { return slices.Contains(contents(t, client), "uid=a|r block 1") })
		for i := range 100 {
			if err := client.HSet(t.Context(), shardKeys("tallygate", 0).verdicts, fmt.Sprint("uid=", i, "|r"), "{").Err(); err != nil {
				t.Fatal(err)
			}
		}
		startFeed(t, client, sink, func(c *FeedConfig) { c.Logger = following.logger() })
		eventually(t, "the feed has it", func() bool { return sink.has("uid=a|r") })
		for where, log := range map[string]*lines{"the publisher": &writing, "the feed": &following} {
			if n := log.count("that is no verdict"); n != 1 {
				t.Errorf("%s says it %d times, want once:\n%s", where, n, log)
			}
		}
	})
}
