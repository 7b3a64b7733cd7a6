package store_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/store"
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

// The beat is an hour, and the test moves the latest one back: how long a call takes on this machine plays no part.
func TestAHeartbeatComesWithTheLastPartition(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		const beat = time.Hour
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
		// passes is time that passes since the latest heartbeat, on all clocks.
		passes := func(d time.Duration) {
			t.Helper()
			now += event.FromDuration(d)
			k := layout.KeysOf(s.Prefix, 0)
			meta, _, err := layout.ReadMeta(t.Context(), client, k)
			if err != nil {
				t.Fatal(err)
			}
			if err := client.HSet(t.Context(), k.Verdicts, layout.MetaBeat, (meta.Beat - event.FromDuration(d)).Duration().Milliseconds()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		said := func(what string, n int, last event.Micros) {
			t.Helper()
			if all := beats(t, client); len(all) != n || all[n-1] != int64(last) {
				t.Errorf("%s: heartbeats %d, want %d of which the last says %d", what, all, n, last)
			}
		}
		now += event.FromDuration(beat)
		apply(0)
		apply(1)
		said("all partitions are filled", 2, now)
		before := now
		for i := range 3 {
			passes(beat)
			apply(0)
			said("one of two partitions was applied", 2+i, before)
			apply(1)
			said("both were applied", 3+i, now)
			before = now
		}
		for i := range 3 {
			passes(beat * 3 / 2)
			apply(0)
			said("partition 1 stands still, and enforcers hear that the stream lives", 6+i, before)
		}
	})
}
