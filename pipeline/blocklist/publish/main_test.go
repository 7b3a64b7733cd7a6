package publish

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startPublisher starts a publisher with quick settings; the returned function stops it.
func startPublisher(t testing.TB, kafka *rig.Broker, client redis.UniversalClient, change func(*Config)) (*Publisher, func()) {
	t.Helper()
	cfg := Config{Redis: client, Kafka: kafka.Addrs, Partitions: 1, Heartbeat: 50 * time.Millisecond, Logger: rig.Quiet()}
	if change != nil {
		change(&cfg)
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p, testrun.Start(t, p.Run)
}

// follow has a sink follow what is published.
func follow(t testing.TB, client redis.UniversalClient, sink blocklist.Sink, shards int) {
	t.Helper()
	f, err := blocklist.NewFeed(blocklist.FeedConfig{
		Redis: client, Shards: shards, Heartbeat: 50 * time.Millisecond, Block: 50 * time.Millisecond, Jitter: 10 * time.Millisecond, Logger: rig.Quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, func(ctx context.Context) error { return f.Run(ctx, sink) })
}
