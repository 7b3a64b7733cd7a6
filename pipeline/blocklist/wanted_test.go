package blocklist

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/verdict"
)

// forgetful is a Sink that can say that it lost something.
type forgetful struct {
	*memory
	wanted atomic.Uint64
}

func (f *forgetful) SnapshotsWanted() uint64 { return f.wanted.Load() }

// A table whose clock was ahead has forgotten what it took for over: nothing in the stream brings that back.
func TestASinkThatForgotSomethingGetsASnapshot(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := newBroker(t, 1), &forgetful{memory: newMemory()}
		p, _ := kafka.publisher(client, nil)
		p.Own(0)
		feed, _ := startFeed(t, client, sink, nil)
		v := block("42", 1, time.Hour)
		offer(p, kafka, record(v))
		eventually(t, "the feed follows", func() bool { return sink.has("uid=42|r") })

		for n := range uint64(2) {
			sink.Remove(0, verdict.AppendRecordKey(nil, &v))
			sink.wanted.Add(1)
			eventually(t, "it is blocked again", func() bool { return sink.has("uid=42|r") })
			eventually(t, "another snapshot was taken", func() bool { return feed.Stats().Snapshots == n+2 && feed.Stats().Lost == 0 })
		}
		offer(p, kafka, record(block("43", 2, time.Hour)))
		eventually(t, "the feed goes on", func() bool { return sink.has("uid=43|r") })
	})
}
