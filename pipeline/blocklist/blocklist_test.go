package blocklist

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/publish"
	"github.com/tallygate/tallygate/verdict"
)

func TestAnOfferedVerdictReachesTheEnforcer(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := rig.NewBroker(t, 1), rig.NewMemory()
		p, _ := startPublisher(t, kafka, client, nil)
		p.Own(0)
		startFeed(t, client, sink, nil)

		rig.Offer(p, kafka, rig.Fence(), rig.Record(rig.Block("42", 1, time.Hour)))
		testrun.Eventually(t, "42 is blocked", func() bool { return sink.Has("uid=42|r") })

		rig.Offer(p, kafka, rig.Record(rig.Clearing("42", 2)))
		testrun.Eventually(t, "42 is cleared", func() bool { return !sink.Has("uid=42|r") })

		before := sink.AppliedUpTo(0)
		testrun.Eventually(t, "heartbeats go on", func() bool { return sink.AppliedUpTo(0) > before })
	})
}

func TestAFlushedRedisIsFilledAgainAndNobodyGetsThrough(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := rig.NewBroker(t, 2), rig.NewMemory()
		var want []string
		size := rig.Most(t, 2000)
		for i := range size {
			v := rig.Block(fmt.Sprint(i), int64(i+1), time.Hour)
			kafka.Write(int32(i%2), rig.Record(v))
			want = append(want, fmt.Sprintf("uid=%d|r seq %d until %d", i, i+1, v.Until))
		}
		slices.Sort(want)
		p, _ := startPublisher(t, kafka, client, func(c *publish.Config) { c.Partitions, c.BatchSize = 2, size/20 })
		p.Own(0)
		p.Own(1)
		startFeed(t, client, sink, nil)
		testrun.Eventually(t, "all are blocked", func() bool { return slices.Equal(sink.Text(), want) })

		for range 3 {
			before := sink.Replaced()
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			testrun.Eventually(t, "a complete snapshot was taken", func() bool { return sink.Replaced() > before })
			if got := sink.Text(); !slices.Equal(got, want) {
				t.Fatalf("after a flush %d verdicts are held, want %d", len(got), len(want))
			}
		}
		if len(sink.Dropped()) > 0 {
			t.Errorf("a snapshot that was not complete dropped %d verdicts, such as %s", len(sink.Dropped()), sink.Dropped()[0])
		}
	})
}

func TestRedisComesBack(t *testing.T) {
	addr := rig.RealRedis(t)
	if client := rig.Dial(t, addr); client.Do(t.Context(), "CONFIG", "SET", "save", "").Err() != nil {
		t.Skip("this Redis can't be stopped by a test")
	}
	kafka, sink := rig.NewBroker(t, 1), rig.NewMemory()
	client := rig.Dial(t, addr)
	p, _ := startPublisher(t, kafka, client, nil)
	p.Own(0)
	startFeed(t, client, sink, nil)
	rig.Offer(p, kafka, rig.Record(rig.Block("1", 1, time.Hour)))
	testrun.Eventually(t, "1 is blocked", func() bool { return sink.Has("uid=1|r") })

	// All clients are thrown out while verdicts flow.
	for i := range 20 {
		rig.Offer(p, kafka, rig.Record(rig.Block(fmt.Sprint(i), int64(i+2), time.Hour)))
		if err := rig.Dial(t, addr).Do(context.Background(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
			t.Fatal(err)
		}
	}
	testrun.Eventually(t, "all are blocked", func() bool { return len(sink.Text()) == 20 })
}

func TestNoticesHaveAKeyOfTheirOwn(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := rig.NewBroker(t, 1), rig.NewMemory()
		p, _ := startPublisher(t, kafka, client, nil)
		p.Own(0)
		startFeed(t, client, sink, nil)
		warn := rig.Block("1", 1, time.Hour)
		warn.State, warn.Step = verdict.Warn, "50%"
		rig.Offer(p, kafka, rig.Record(warn), rig.Record(rig.Block("1", 2, time.Hour)))
		testrun.Eventually(t, "both are held", func() bool { return sink.Has("uid=1|r") && sink.Has("uid=1|r|warn") })
	})
}

func TestConfigReportsAllErrors(t *testing.T) {
	_, err := NewFeed(FeedConfig{Prefix: "{x}", Heartbeat: -1})
	for _, want := range []string{"Redis is required", "Heartbeat is negative", "without braces"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %q doesn't say %q", err, want)
		}
	}
	if _, err := NewFeed(FeedConfig{Block: time.Minute, Redis: rig.Dial(t, "127.0.0.1:1")}); err == nil || !strings.Contains(err.Error(), "ReadTimeout") {
		t.Errorf("error %v, want one about the ReadTimeout", err)
	}
	replicas := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadOnly: true})
	defer replicas.Close()
	if _, err := NewFeed(FeedConfig{Redis: replicas}); err == nil || !strings.Contains(err.Error(), "primaries only") {
		t.Errorf("error %v, want one about replicas", err)
	}
}

// TestWhatIsNoVerdictIsSaidOnce: a client that fills the topic, or Redis, with anything at all does
// not fill the log.
func TestWhatIsNoVerdictIsSaidOnce(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := rig.NewBroker(t, 1), rig.NewMemory()
		var writing, following testrun.Output
		p, _ := startPublisher(t, kafka, client, func(c *publish.Config) { c.Logger = writing.Logger() })
		p.Own(0)
		for i := range 100 {
			rig.Offer(p, kafka, publish.Record{Key: fmt.Append(nil, "uid=", i, "|r"), Value: []byte("{")})
		}
		rig.Offer(p, kafka, rig.Record(rig.Block("a", 1, time.Hour)))
		testrun.Eventually(t, "the verdict behind them is in Redis", func() bool { return slices.Contains(rig.Contents(t, client), "uid=a|r block 1") })
		for i := range 100 {
			if err := client.HSet(t.Context(), layout.KeysOf("tallygate", 0).Verdicts, fmt.Sprint("uid=", i, "|r"), "{").Err(); err != nil {
				t.Fatal(err)
			}
		}
		startFeed(t, client, sink, func(c *FeedConfig) { c.Logger = following.Logger() })
		testrun.Eventually(t, "the feed has it", func() bool { return sink.Has("uid=a|r") })
		for where, log := range map[string]*testrun.Output{"the publisher": &writing, "the feed": &following} {
			if n := log.Count("skipping a malformed"); n != 1 {
				t.Errorf("%s says it %d times, want once:\n%s", where, n, log)
			}
		}
	})
}
