package enforce

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

// TestNobodyIsSeenUnblocked checks keys that are blocked throughout, while writers extend them,
// replace all, and add and remove others so fast that the index grows and shrinks all the time.
func TestNobodyIsSeenUnblocked(t *testing.T) {
	const always = 200
	table := newTable(t)
	key := func(i int) string { return "uid=always" + strconv.Itoa(i) }
	var all []verdict.Verdict
	for i := range always {
		all = append(all, block("r", key(i), nil))
	}
	table.Replace(0, all)

	var stop atomic.Bool
	var readers, writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for n := range 1500 {
				batch := []verdict.Verdict{
					block("r", key(rand.IntN(always)), func(v *verdict.Verdict) { v.Until += event.Micros(n); v.Seq = int64(n) }),
					block("s", key(rand.IntN(always)), nil),
				}
				for i := range 50 {
					other := block("r", fmt.Sprintf("uid=other%d-%d", w, rand.IntN(3000)), nil)
					if i%2 == 0 {
						other.State = verdict.Clear
					}
					other.Seq = int64(n)
					batch = append(batch, other)
				}
				table.Apply(0, batch)
				switch {
				case n%100 == 0:
					table.Replace(0, all)
				case n%70 == 0:
					table.index.Sweep(t0)
				case n%11 == 0:
					table.Remove(0, []byte(key(rand.IntN(always))+"|s"))
				}
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			for i := 0; !stop.Load(); i++ {
				uid := "always" + strconv.Itoa(i%always)
				if d := table.CheckAt(t0, "a", uid); d.Allowed {
					t.Errorf("%s was let through", uid)
					return
				}
				table.CheckAt(t0, "a", "other0-"+strconv.Itoa(i%3000))
			}
		})
	}
	writers.Wait()
	stop.Store(true)
	readers.Wait()
}

// Requests wait, leave and give up while verdicts come, move and go: for the race detector. At the
// end nobody waits, and no line is left.
func TestWaitingBesideChanges(t *testing.T) {
	table := running(t, Config{})
	throttle, err := NewThrottleWith(table, ThrottleConfig{MaxDelay: 100 * time.Millisecond, MaxDelayed: 40, MaxDelayedPerKey: 15})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		for seq := int64(1); ctx.Err() == nil; seq++ {
			table.Apply(0, []verdict.Verdict{block("r", "uid="+strconv.Itoa(int(seq%3)), func(v *verdict.Verdict) {
				v.Action, v.Seq, v.Since, v.Until = verdict.ActThrottle, seq, now(), now()+event.Micros(seq%7)*5*event.Millisecond
				v.Limit, v.Per = 500*event.One, event.Second
				if seq%11 == 0 {
					v.State = verdict.Clear
				}
			})})
			time.Sleep(5 * time.Millisecond)
		}
	})
	for i := range 60 {
		all.Go(func() {
			dims := []event.Dim{{Name: "uid", Value: strconv.Itoa(i % 3)}}
			for n := 0; ctx.Err() == nil; n++ {
				patience, leave := context.WithTimeout(ctx, time.Duration(1+n%50)*time.Millisecond)
				throttle.Await(patience, table.CheckDims("a", dims), "a", dims)
				leave()
			}
		})
	}
	all.Wait()
	s := throttle.Stats()
	if s.Waiting != 0 || s.Released == 0 || s.GaveUp == 0 || s.TurnedAway == 0 {
		t.Errorf("%+v, want none waiting, and some of each", s)
	}
	testrun.Eventually(t, "no line is left", func() bool { return !throttle.Busy() })
}
