package enforce

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testrun"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// watched is what a reader does; a watchdog looks whether it goes on.
type watched struct {
	done atomic.Int64
	stop atomic.Bool
}

// stuck waits until more was done, or until ended is closed, and reports whether neither comes.
func (w *watched) stuck(ended <-chan struct{}) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for before, late := w.done.Load(), time.After(20*time.Second); w.done.Load() == before; {
		select {
		case <-late:
			return true
		case <-ended:
			return false
		case <-tick.C:
		}
	}
	return false
}

// TestChecksEndWhateverChanges keeps small tables under churn, and checks users who have no verdict: after each change, and all the
// time in two goroutines. One insert could flag the last two buckets that were not flagged, and a check that goes on as long as
// a bucket is flagged then never ended. TALLYGATE_TEST_CHURN is how many changes to make.
func TestChecksEndWhateverChanges(t *testing.T) {
	changes := 100_000
	if testing.Short() {
		changes = 30_000
	}
	if n, err := strconv.Atoi(os.Getenv("TALLYGATE_TEST_CHURN")); err == nil {
		changes = n
	}
	r := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	table := newTable(t)
	all := []*watched{{}, {}, {}}
	var running sync.WaitGroup
	for i, w := range all[1:] {
		running.Go(func() {
			for n := 0; !w.stop.Load(); n++ {
				uid := "nobody" + strconv.Itoa(n%1000)
				if i == 0 && !table.Check("a", uid).Allowed || i == 1 && !table.CheckDimsAt(t0, "a", []event.Dim{{Name: "uid", Value: uid}}).Allowed {
					t.Errorf("%s is denied", uid)
					return
				}
				w.done.Add(1)
			}
		})
	}
	churned := make(chan struct{})
	running.Go(func() {
		defer close(churned)
		churn(t, r, table, changes, &all[0].done)
	})
	for ended := false; !ended; {
		for i, w := range all {
			if w.stuck(churned) { // it would spin for ever, and nothing could end this test
				panic(fmt.Sprintf("a check of goroutine %d has not ended within 20 s, after %d changes", i, all[0].done.Load()))
			}
		}
		select {
		case <-churned:
			ended = true
		case <-time.After(time.Second):
		}
	}
	for _, w := range all {
		w.stop.Store(true)
	}
	running.Wait()
}

// churn adds and clears verdicts of a table of 2 to 100 entries, half of the time 20 to 33: with those eight buckets overflow
// most often.
func churn(t *testing.T, r *rand.Rand, table *Table, changes int, done *atomic.Int64) {
	var held []verdict.Verdict
	for n, size := 0, 2; n < changes; n++ {
		if n%1000 == 0 {
			if size = 2 + r.IntN(99); r.IntN(2) == 0 {
				size = 20 + r.IntN(14)
			}
		}
		v := block("r", "uid=churn"+strconv.Itoa(n), nil)
		if i := r.IntN(len(held) + 1); i < len(held) && (len(held) >= size || r.IntN(8) == 0) {
			v = held[i]
			v.State = verdict.Clear
			held = slices.Delete(held, i, i+1)
		} else {
			held = append(held, v)
		}
		table.Apply(0, []verdict.Verdict{v})
		if !table.Check("a", "nobody").Allowed {
			t.Error("nobody is denied")
			return
		}
		done.Add(1)
	}
	if table.Len() != len(held) {
		t.Errorf("%d verdicts, want %d", table.Len(), len(held))
	}
}
