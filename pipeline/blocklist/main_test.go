package blocklist

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/publish"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startPublisher starts a publisher with quick settings; the returned function stops it.
func startPublisher(t testing.TB, kafka *rig.Broker, client redis.UniversalClient, change func(*publish.Config)) (*publish.Publisher, func()) {
	t.Helper()
	cfg := publish.Config{Redis: client, Kafka: kafka.Addrs, Partitions: 1, Heartbeat: 50 * time.Millisecond, Logger: rig.Quiet()}
	if change != nil {
		change(&cfg)
	}
	p, err := publish.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p, testrun.Start(t, p.Run)
}

func startFeed(t testing.TB, client redis.UniversalClient, sink Sink, change func(*FeedConfig)) (*Feed, func()) {
	t.Helper()
	cfg := FeedConfig{Redis: client, Heartbeat: 50 * time.Millisecond, Block: 50 * time.Millisecond, Jitter: 10 * time.Millisecond, Logger: rig.Quiet()}
	if change != nil {
		change(&cfg)
	}
	f, err := NewFeed(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f, testrun.Start(t, func(ctx context.Context) error { return f.Run(ctx, sink) })
}
