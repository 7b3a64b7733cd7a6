package blocklist

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/verdict"
)

// forgetful is a Sink that can say that it lost something.
type forgetful struct {
	*rig.Memory
	wanted atomic.Uint64
}

func (f *forgetful) SnapshotsWanted() uint64 { return f.wanted.Load() }

// A table whose clock was ahead has forgotten what it took for over: nothing in the stream brings
// that back.
func TestASinkThatForgotSomethingGetsASnapshot(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := rig.NewBroker(t, 1), &forgetful{Memory: rig.NewMemory()}
		p, _ := startPublisher(t, kafka, client, nil)
		p.Own(0)
		feed, _ := startFeed(t, client, sink, nil)
		v := rig.Block("42", 1, time.Hour)
		rig.Offer(p, kafka, rig.Record(v))
		testrun.Eventually(t, "the feed follows", func() bool { return sink.Has("uid=42|r") })

		for n := range uint64(2) {
			sink.Remove(0, verdict.AppendRecordKey(nil, &v))
			sink.wanted.Add(1)
			testrun.Eventually(t, "it is blocked again", func() bool { return sink.Has("uid=42|r") })
			testrun.Eventually(t, "another snapshot was taken", func() bool { return feed.Stats().Snapshots == n+2 && feed.Stats().Lost == 0 })
		}
		rig.Offer(p, kafka, rig.Record(rig.Block("43", 2, time.Hour)))
		testrun.Eventually(t, "the feed goes on", func() bool { return sink.Has("uid=43|r") })
	})
}
