package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/store"
)

func TestOnlyTheTopicIsNeeded(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := rig.NewBroker(t, 2), rig.NewMemory()
		kafka.Write(0, rig.Fence(), rig.Record(rig.Block("before", 1, time.Hour)))
		startPublisher(t, kafka, client, func(c *Config) { c.PublishOnly, c.Partitions, c.Shards = true, 2, 2 })
		follow(t, client, sink, 2)
		testrun.Eventually(t, "the old one is blocked", func() bool { return sink.Has("uid=before|r") })

		kafka.Write(1, rig.Record(rig.Block("after", 1, time.Hour)))
		testrun.Eventually(t, "the new one is blocked", func() bool { return sink.Has("uid=after|r") })
		kafka.Write(1, rig.Tombstone(rig.Block("after", 1, time.Hour)))
		testrun.Eventually(t, "a tombstone removes it", func() bool { return !sink.Has("uid=after|r") })
	})
}

func TestPublishersCompete(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := rig.NewBroker(t, 1), rig.NewMemory()
		follow(t, client, sink, 1)
		a, stopA := startPublisher(t, kafka, client, nil)
		b, _ := startPublisher(t, kafka, client, nil)
		a.Own(0)
		b.Own(0)
		first := [3]any{}
		for i := range 20 { // both are told, as by an owner that doesn't know it was replaced
			from, to, records := kafka.Write(0, rig.Record(rig.Block(fmt.Sprint(i), int64(i), time.Hour)))
			a.Offer(0, from, to, records)
			b.Offer(0, from, to, records)
			first = [3]any{from, to, records}
		}
		testrun.Eventually(t, "all are blocked", func() bool { return len(sink.Text()) == 20 })

		stopA() // paused
		p, next, r := kafka.Write(0, rig.Record(rig.Block("0", 100, 2*time.Hour)))
		b.Offer(0, p, next, r)
		testrun.Eventually(t, "the second goes on", func() bool { return sink.Seq("uid=0|r") == 100 })

		again, _ := startPublisher(t, kafka, client, nil) // wakes up with old offers
		again.Own(0)
		again.Offer(0, first[0].(int64), first[1].(int64), first[2].([]Record))
		testrun.Eventually(t, "the old one has caught up", func() bool {
			s := again.Stats()
			return s.Partitions[0].Reached == next && s.Partitions[0].Applied > 0
		})
		if got := sink.Seq("uid=0|r"); got != 100 {
			t.Errorf("seq is %d after a publisher with old offers, want 100", got)
		}
	})
}

func TestOffersThatDontFitAreReadFromTheTopic(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := rig.NewBroker(t, 1), rig.NewMemory()
		p, _ := startPublisher(t, kafka, client, func(c *Config) { c.Buffer = 1000 })
		p.Own(0)
		for i := range 300 {
			rig.Offer(p, kafka, rig.Record(rig.Block(fmt.Sprint(i), 1, time.Hour)), rig.Record(rig.Block(fmt.Sprint(i, "b"), 1, time.Hour)), rig.Fence())
		}
		follow(t, client, sink, 1)
		testrun.Eventually(t, "all are blocked", func() bool { return len(sink.Text()) == 600 })
		testrun.Eventually(t, "nothing is left", func() bool { return p.Stats().Partitions[0].Lag == 0 })
	})
}

func TestAnOwnerLeavesAndReturns(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := rig.NewBroker(t, 1), rig.NewMemory()
		follow(t, client, sink, 1)
		p, _ := startPublisher(t, kafka, client, nil)
		p.Own(0)
		rig.Offer(p, kafka, rig.Record(rig.Block("1", 1, time.Hour)))
		testrun.Eventually(t, "1 is blocked", func() bool { return sink.Has("uid=1|r") })
		p.Disown(0)
		from, next, records := kafka.Write(0, rig.Record(rig.Block("2", 1, time.Hour)))
		p.Offer(0, from, next, records)
		if len(p.Stats().Partitions) != 0 {
			t.Error("a partition that was given up is still published")
		}
		kafka.Write(0, rig.Fence())
		p.Own(0)
		rig.Offer(p, kafka, rig.Record(rig.Block("3", 1, time.Hour)))
		testrun.Eventually(t, "2 and 3 are blocked", func() bool { return sink.Has("uid=2|r") && sink.Has("uid=3|r") })
	})
}

func TestAPolicyThatEvictsIsRefused(t *testing.T) {
	addr := rig.RealRedis(t)
	client := rig.Dial(t, addr)
	if err := client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	defer client.ConfigSet(context.Background(), "maxmemory-policy", "noeviction")
	p, err := New(Config{Redis: client, Kafka: []string{"127.0.0.1:1"}, Partitions: 1, Logger: rig.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context()); err == nil {
		t.Error("Run returned nil, want an error that names the policy")
	}
}

// TestAPublisherOfAnotherNumberOfShardsRefuses at its start, and writes nothing when it finds out
// later.
func TestAPublisherOfAnotherNumberOfShardsRefuses(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, k := rig.NewBroker(t, 2), layout.KeysOf("tallygate", 0)
		two := func(c *Config) { c.Partitions, c.Shards = 2, 2 }
		one := func(c *Config) { c.Partitions = 2 }
		p, stop := startPublisher(t, kafka, client, two)
		p.Own(0)
		testrun.Eventually(t, "there are two", func() bool { return client.HGet(t.Context(), k.Verdicts, layout.MetaShards).Val() == "2" })
		stop()
		other, err := New(Config{Redis: client, Kafka: kafka.Addrs, Partitions: 2, Logger: rig.Quiet()})
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Run(t.Context()); !errors.Is(err, blocklist.ErrShards) || !strings.Contains(err.Error(), "says 2, and this program was started with 1") {
			t.Errorf("at the start: %v", err)
		}
		client.FlushAll(t.Context())
		late, _ := startPublisher(t, kafka, client, one) // nothing is there yet
		testrun.Eventually(t, "it runs", func() bool {
			late.Own(1)
			return len(late.Stats().Partitions) == 1 && late.Stats().Partitions[0].Applies > 0
		})
		// Another program's, in one command: between a flush and its first write this one would be
		// there again.
		if err := client.HSet(t.Context(), k.Verdicts, layout.MetaShards, 2).Err(); err != nil {
			t.Fatal(err)
		}
		held := client.HGetAll(t.Context(), k.Verdicts).Val()
		testrun.Eventually(t, "it says why it is stuck", func() bool { return late.Stats().Errors[blocklist.ErrorShards] > 0 && late.Stats().Failing })
		if now := client.HGetAll(t.Context(), k.Verdicts).Val(); len(now) != len(held) || now[layout.MetaN] != held[layout.MetaN] {
			t.Errorf("it wrote: %v, and there was %v", now, held)
		}
	})
}

// TestAPublisherTellsThatRedisWasFlushed, not for each partition and attempt, and that it is filled
// again: it said nothing.
func TestAPublisherTellsThatRedisWasFlushed(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		log, kafka := &testrun.Output{}, rig.NewBroker(t, 3)
		p, _ := startPublisher(t, kafka, client, func(c *Config) { c.Partitions, c.Logger = 3, log.Logger() })
		for partition := range int32(3) {
			p.Own(partition)
			first, next, offered := kafka.Write(partition, rig.Record(rig.Block("u", 1, time.Hour)))
			p.Offer(partition, first, next, offered)
		}
		all := func() bool {
			_, found, err := layout.ReadMeta(t.Context(), client, layout.KeysOf("tallygate", 0))
			for _, s := range p.Stats().Partitions {
				if s.Reached < 1 || s.Applied == 0 {
					return false
				}
			}
			return found && err == nil
		}
		testrun.Eventually(t, "all are published", all)
		if log.Has("lost its contents") || p.Stats().Refills != 0 {
			t.Fatalf("before: %s", log)
		}
		if err := client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		testrun.Eventually(t, "it tells of all", func() bool { return p.Stats().Refills == 3 && log.Has("is refilled") && all() })
		if log.Count("lost its contents") > 3 {
			t.Errorf("the log: %s", log)
		}
	})
}

// TestTwoFillAnEmptyRedisAtOnce: one publisher read the topic before a block was removed and one
// after, which therefore leaves the block and its removal out. When the first one's batch gets
// there first, the second must not go on with what it has: the removal would be lost.
func TestTwoFillAnEmptyRedisAtOnce(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, s := rig.NewBroker(t, 1), rig.NewStore(t, client)
		p, stop := startPublisher(t, kafka, client, nil)
		stop()
		defer p.cfg.Transport.CloseIdleConnections()
		second := newWorker(p, 0)
		if !second.ask(t.Context()) || second.reached != 0 {
			t.Fatalf("reached %d, want 0", second.reached)
		}

		_, end, early := kafka.Write(0, rig.Record(rig.Block("1", 1, time.Hour)), rig.Record(rig.Block("2", 1, time.Hour)))
		if _, ok, err := s.Apply(t.Context(), store.Batch{Start: 0, Next: end, Records: early}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		_, end, late := kafka.Write(0, rig.Tombstone(rig.Block("1", 1, time.Hour)), rig.Record(rig.Block("3", 1, time.Hour)))
		second.write(t.Context(), written{records: slices.Concat(early[1:], late[1:]), end: end, partial: true})
		if !second.behind {
			t.Error("the second goes on as if it had been the only one")
		}
		if err := second.catchUp(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		want := []string{"uid=2|r block 1", "uid=3|r block 1"}
		if got := rig.Contents(t, client); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// TestAFullRedisFreesWhatRanOut: a blocklist that has filled Redis all by itself gets out of it
// without help.
func TestAFullRedisFreesWhatRanOut(t *testing.T) {
	client := rig.Dial(t, servers.StartRedis(t).Addr())
	kafka, sink := rig.NewBroker(t, 1), rig.NewMemory()
	p, _ := startPublisher(t, kafka, client, func(c *Config) { c.Grace = time.Millisecond })
	p.Own(0)
	follow(t, client, sink, 1)
	var records []Record
	for _, uid := range rig.UIDs("long ", 20_000) {
		records = append(records, rig.Record(rig.Block(uid, 1, 5*time.Second)))
	}
	rig.Offer(p, kafka, records...)
	testrun.Eventually(t, "all are in Redis", func() bool { return p.Stats().Partitions[0].Reached == int64(len(records)) })
	used := client.InfoMap(t.Context(), "memory").Item("Memory", "used_memory")
	if err := client.ConfigSet(t.Context(), "maxmemory", used).Err(); err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "Redis is full", func() bool {
		rig.Offer(p, kafka, rig.Record(rig.Block("another", 2, time.Hour)))
		return p.Stats().Errors[blocklist.ErrorMemory] > 0
	})
	rig.Offer(p, kafka, rig.Record(rig.Block("last", 2, time.Hour)))
	testrun.Eventually(t, "room was made for the last one", func() bool { return sink.Has("uid=last|r") && !p.Stats().Failing })
}

func TestConfigReportsAllErrors(t *testing.T) {
	_, err := New(Config{Prefix: "{x}"})
	for _, want := range []string{"Redis is required", "Kafka is required", "Partitions is 0", "without braces"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %q doesn't say %q", err, want)
		}
	}
}

// Redis carries out what it gets on a half-open connection, and its answer is lost: the publisher
// sends the same again on another one, and each verdict is in the stream once.
func TestAConnectionThatIsHalfOpen(t *testing.T) {
	addr, network := rig.RealRedis(t), servers.NewNetwork(t)
	through := redis.NewClient(&redis.Options{Addr: addr, Dialer: network.Dial, ReadTimeout: 300 * time.Millisecond, MaintNotificationsConfig: rig.NoNotices})
	t.Cleanup(func() { _ = through.Close() })
	kafka, client := rig.NewBroker(t, 1), rig.Dial(t, addr)
	p, _ := startPublisher(t, kafka, through, nil)
	p.Own(0)
	for i, uid := range []string{"1", "2", "3"} {
		if i > 0 {
			network.DropReplies()
		}
		rig.Offer(p, kafka, rig.Record(rig.Block(uid, 1, time.Hour)))
		testrun.Eventually(t, uid+" is published", func() bool { return p.Stats().Partitions[0].Reached == int64(i+1) })
	}
	if got := rig.Contents(t, client); len(got) != 3 {
		t.Errorf("Redis has %v, want three verdicts", got)
	}
	var sent []any
	for _, entry := range rig.CheckStream(t, client) {
		if key := entry.Values["k"]; key != nil { // else it is a heartbeat
			sent = append(sent, key)
		}
	}
	if want := "[uid=1|r uid=2|r uid=3|r]"; fmt.Sprint(sent) != want {
		t.Errorf("the stream has %v, want %s", sent, want)
	}
}
