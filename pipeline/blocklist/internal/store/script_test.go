package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/store"
)

// put applies records at the offset that Redis has reached.
func put(t *testing.T, s *store.Store, records ...store.Record) {
	t.Helper()
	start, _, err := s.Apply(t.Context(), store.Batch{Start: store.NoOffset})
	if err != nil {
		t.Fatal(err)
	}
	next := start + max(int64(len(records)), 1)
	if reached, ok, err := s.Apply(t.Context(), store.Batch{Start: start, Next: next, Records: records}); err != nil || !ok || reached != next {
		t.Fatalf("apply [%d, %d): reached %d, %v, %v", start, next, reached, ok, err)
	}
}

func TestTheScriptAppliesOnlyWhatComesNext(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := rig.NewStore(t, client)
		for i, c := range []struct {
			start, next, reached int64
			ok                   bool
		}{
			{5, 6, 0, false}, {0, 3, 3, true}, {0, 3, 3, false}, {2, 9, 3, false}, {4, 5, 3, false}, {3, 3, 3, true}, {3, 8, 8, true},
		} {
			reached, ok, err := s.Apply(t.Context(), store.Batch{Start: c.start, Next: c.next, Records: []store.Record{rig.Record(rig.Block(fmt.Sprint(i), 1, time.Hour))}})
			if err != nil || reached != c.reached || ok != c.ok {
				t.Errorf("[%d, %d): reached %d, applied %v, %v, want %d, %v", c.start, c.next, reached, ok, err, c.reached, c.ok)
			}
		}
		want := []string{"uid=1|r block 1", "uid=5|r block 1", "uid=6|r block 1"}
		if got := rig.Contents(t, client); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		rig.CheckStream(t, client)
	})
}

func TestTheScriptKeepsTheNewest(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := rig.NewStore(t, client)
		for i, step := range []struct {
			record store.Record
			want   string
		}{
			{rig.Record(rig.Block("1", 5, time.Hour)), "uid=1|r block 5"},
			{rig.Record(rig.Block("1", 4, time.Hour)), "uid=1|r block 5"},
			{rig.Record(rig.Block("1", 5, 2*time.Hour)), "uid=1|r block 5"},
			{rig.Record(rig.Clearing("1", 6)), "uid=1|r clear 6"},
			{rig.Record(rig.Block("1", 5, time.Hour)), "uid=1|r clear 6"}, // it doesn't come back
			{rig.Record(rig.Block("1", 7, time.Hour)), "uid=1|r block 7"},
			{rig.Tombstone(rig.Block("1", 0, 0)), ""},
			{rig.Tombstone(rig.Block("1", 0, 0)), ""},
			{rig.Record(rig.Block("1", 1, -2*time.Hour)), ""}, // ran out long ago
		} {
			put(t, s, step.record)
			got := ""
			for _, line := range rig.Contents(t, client) {
				got += line
			}
			if got != step.want {
				t.Errorf("step %d: %q, want %q", i, got, step.want)
			}
		}
		// Four changes, and one heartbeat of the first batch.
		if n := len(rig.CheckStream(t, client)); n != 5 {
			t.Errorf("%d entries in the stream, want 5", n)
		}
	})
}

func TestAClearStaysAsLongAsItsBlockWouldHave(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := rig.NewStore(t, client)
		s.Grace = event.Second
		blocked := rig.Block("1", 5, time.Hour)
		put(t, s, rig.Record(blocked))
		ended := rig.Clearing("1", 6)
		ended.Until -= event.Minute // a minute ago: on its own it would be gone
		put(t, s, rig.Record(ended))
		if got := rig.Contents(t, client); !slices.Equal(got, []string{"uid=1|r clear 6"}) {
			t.Errorf("%v, want the clear", got)
		}
		score, err := client.ZScore(t.Context(), "{tallygate:0}:expiry", "uid=1|r").Result()
		if want := float64(blocked.Until + event.Second); err != nil || score != want {
			t.Errorf("it stays until %f, %v, want %f", score, err, want)
		}
	})
}

func TestTheScriptRemovesWhatRanOutBitByBit(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := rig.NewStore(t, client)
		s.Grace = 0
		var records []store.Record
		for i := range 3 * store.ExpiredPerBatch {
			records = append(records, rig.Record(rig.Block(fmt.Sprint(i), 1, 300*time.Millisecond)))
		}
		put(t, s, append(records, rig.Record(rig.Block("stays", 1, time.Hour)))...)
		if got := len(rig.Contents(t, client)); got != len(records)+1 {
			t.Fatalf("%d verdicts, want %d", got, len(records)+1)
		}
		testrun.Eventually(t, "all but one are gone", func() bool {
			put(t, s)
			return slices.Equal(rig.Contents(t, client), []string{"uid=stays|r block 1"})
		})
		rig.CheckStream(t, client)
	})
}

func TestANewEpochIsAlwaysGreater(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s, k := rig.NewStore(t, client), layout.KeysOf("tallygate", 0)
		epoch := func() uint64 {
			m, found, err := layout.ReadMeta(t.Context(), client, k)
			if err != nil || !found {
				t.Fatal(found, err)
			}
			return m.Epoch
		}
		put(t, s, rig.Record(rig.Block("1", 1, time.Hour)))
		before := epoch()
		client.Del(t.Context(), k.Verdicts) // the meta is lost, the stream is not
		put(t, s, rig.Record(rig.Block("1", 1, time.Hour)))
		if epoch() <= before {
			t.Errorf("epoch %d after %d", epoch(), before)
		}
		rig.CheckStream(t, client)

		future := fmt.Sprint(before + 1<<30) // a stranger, or a clock that was ahead
		client.XAdd(t.Context(), &redis.XAddArgs{Stream: k.Changes, ID: future + "-7", Values: []string{"x", "y"}})
		put(t, s, rig.Record(rig.Block("2", 1, time.Hour)))
		if epoch() <= before+1<<30 {
			t.Errorf("epoch %d after %s", epoch(), future)
		}
		rig.CheckStream(t, client)
		client.Del(t.Context(), k.Changes)
		put(t, s, rig.Record(rig.Block("3", 1, time.Hour)))
		want := []string{"uid=1|r block 1", "uid=2|r block 1", "uid=3|r block 1"}
		if got := rig.Contents(t, client); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

func TestARecordThatIsNoVerdictStopsNothing(t *testing.T) {
	client := rig.Dial(t, rig.RealRedis(t))
	s := rig.NewStore(t, client)
	skipped := 0
	s.Bad = func(store.Record, error) { skipped++ }
	put(t, s, store.Record{Key: []byte("uid=1|r"), Value: []byte("{")}, rig.Record(rig.Block("2", 1, time.Hour)))
	if got := rig.Contents(t, client); skipped != 1 || !slices.Equal(got, []string{"uid=2|r block 1"}) {
		t.Errorf("%v, %d skipped, want the second record and one skipped", got, skipped)
	}
}

func TestNothingIsHalfWrittenWithoutMemory(t *testing.T) {
	client := rig.Dial(t, rig.RealRedis(t))
	s := rig.NewStore(t, client)
	put(t, s, rig.Record(rig.Block("1", 1, time.Hour)))
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	defer client.ConfigSet(context.Background(), "maxmemory", "0")
	if _, _, err := s.Apply(t.Context(), store.Batch{Start: 1, Next: 2, Records: []store.Record{rig.Record(rig.Block("2", 1, time.Hour))}}); err == nil {
		t.Error("no error without memory")
	}
	client.ConfigSet(t.Context(), "maxmemory", "0")
	rig.CheckStream(t, client)
	put(t, s, rig.Record(rig.Block("2", 1, time.Hour)))
	if got := rig.Contents(t, client); len(got) != 2 {
		t.Errorf("%v, want both", got)
	}
	rig.CheckStream(t, client)
}
