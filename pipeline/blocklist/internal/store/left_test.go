package store_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/store"
	"github.com/tallygate/tallygate/verdict"
)

// What is left is ordered by the offsets of its records, which have no seq of their own.
func TestWhatIsLeftIsOrderedByItsOffsets(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := rig.NewStore(t, client)
		left := func(offset int64, count event.Decimal) store.Record {
			v := rig.Block("1", 0, time.Hour)
			v.State, v.Count = verdict.Left, count*event.One
			r := rig.Record(v)
			r.Offset = offset
			return r
		}
		held := func() verdict.Verdict {
			text, err := client.HGet(t.Context(), "{tallygate:0}:verdicts", "uid=1|r|left").Result()
			if err != nil {
				t.Fatal(err)
			}
			v, err := verdict.Parse([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		for _, step := range []struct {
			offset int64
			count  event.Decimal
			want   event.Decimal
		}{{7, 1, 1}, {9, 3, 3}, {8, 2, 3}, {9, 4, 3}, {12, 5, 5}} {
			put(t, s, left(step.offset, step.count))
			if v := held(); v.Count != step.want*event.One {
				t.Errorf("behind offset %d the count is %v, want %d", step.offset, v.Count, step.want)
			}
		}
		if v := held(); v.Seq != 12 || v.State != verdict.Left {
			t.Errorf("%+v: want it with its offset as seq", v)
		}
	})
}

// What is left leaves Redis when it is over, without a grace. What only ends it stays, so that
// readers hear of it.
func TestWhatIsLeftLeavesWhenItIsOver(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := rig.NewStore(t, client)
		s.Grace = event.Hour
		v := rig.Block("1", 0, 10*time.Minute)
		v.State = verdict.Left
		record := func(offset int64) store.Record {
			r := rig.Record(v)
			r.Offset = offset
			return r
		}
		score := func() float64 {
			at, err := client.ZScore(t.Context(), "{tallygate:0}:expiry", "uid=1|r|left").Result()
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		put(t, s, record(1))
		if at := score(); at != float64(v.Until) {
			t.Errorf("it stays until %f, want %d", at, v.Until)
		}
		entries := len(rig.CheckStream(t, client))
		v.Until = v.Since
		put(t, s, record(2))
		if now := len(rig.CheckStream(t, client)); now != entries+1 {
			t.Errorf("%d entries in the stream, want %d: readers have to hear that it is over", now, entries+1)
		}
		if at := score(); at <= float64(event.FromTime(time.Now())) {
			t.Errorf("the end of it stays until %f", at)
		}
	})
}
