package store_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/store"
	"github.com/tallygate/tallygate/pipeline/event"
)

// beats returns what the stream's heartbeats say, in order.
func beats(t *testing.T, client redis.UniversalClient) (applied []int64) {
	t.Helper()
	for _, e := range rig.CheckStream(t, client) {
		if h, ok := e.Values["h"].(string); ok {
			n, err := strconv.ParseInt(h, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			applied = append(applied, n)
		}
	}
	return applied
}

func TestAHeartbeatComesWithTheLastPartition(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		const beat = 40 * time.Millisecond
		s := rig.NewStore(t, client)
		s.Partitions, s.BeatMillis = 2, beat.Milliseconds()
		now := event.Micros(0) // the publishers' clock
		apply := func(partition int32) {
			t.Helper()
			start, _, err := s.Apply(t.Context(), store.Batch{Partition: partition, Start: store.NoOffset})
			if err != nil {
				t.Fatal(err)
			}
			if _, ok, err := s.Apply(t.Context(), store.Batch{Partition: partition, Start: start, Next: start, Applied: now}); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		last := func() event.Micros { all := beats(t, client); return event.Micros(all[len(all)-1]) }
		now += event.FromDuration(beat)
		apply(0)
		apply(1)
		if last() != now {
			t.Errorf("the first heartbeat says %d, want %d as soon as all partitions are filled", last(), now)
		}
		for range 3 {
			testrun.Eventually(t, "a heartbeat comes with partition 1", func() bool {
				now += event.FromDuration(beat)
				time.Sleep(beat) // as the publishers do; Redis' clock goes by itself
				apply(0)
				apply(1)
				return last() == now
			})
		}
		all := now
		testrun.Eventually(t, "there are heartbeats though partition 1 stands still", func() bool {
			before := len(beats(t, client))
			now += event.FromDuration(beat)
			apply(0)
			return len(beats(t, client)) > before
		})
		if last() != all {
			t.Errorf("the last heartbeat says %d, want %d as long as one partition is not applied further", last(), all)
		}
	})
}
