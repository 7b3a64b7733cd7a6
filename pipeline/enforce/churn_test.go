package enforce

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/rig"
	"github.com/tallygate/tallygate/verdict"
)

// watched is a reader's work; a watchdog looks whether it goes on.
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

// churn adds and clears verdicts of a small table.
func churn(t *testing.T, r *rand.Rand, table *Table, changes int, done *atomic.Int64) {
	c := rig.Churn{R: r, Since: t0}
	for range changes {
		table.Apply(0, []verdict.Verdict{c.Next()})
		if !table.Check("a", "nobody").Allowed {
			t.Error("nobody is denied")
			return
		}
		done.Add(1)
	}
	if table.Len() != len(c.Held) {
		t.Errorf("%d verdicts, want %d", table.Len(), len(c.Held))
	}
}
