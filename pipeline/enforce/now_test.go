package enforce

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/rig"
	"github.com/tallygate/tallygate/verdict"
)

// With Config.Now a table has the time of a test: nothing that it answers looks at the system's clock, Run
// or not, and it is never stale.
func TestATableFollowsTheClockOfATest(t *testing.T) {
	var clock atomic.Int64
	start := event.FromTime(time.Date(2001, time.February, 3, 4, 5, 6, 0, time.UTC))
	clock.Store(int64(start))
	table, err := NewTable(Config{Now: func() event.Micros { return event.Micros(clock.Load()) }, OnStale: Closed})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- table.Run(ctx) }()
	table.Replace(0, []verdict.Verdict{rig.Block("r", "uid=7", start+event.Second, start+event.Minute, nil)})
	table.Heartbeat(0, math.MaxInt64)
	for after, denied := range map[event.Micros]bool{0: false, event.Second - 1: false, event.Second: true, event.Minute - 1: true, event.Minute: false} {
		clock.Store(int64(start + after))
		dims := []event.Dim{{Name: dimUID, Value: "7"}}
		d := table.Check("x", "7")
		if d.Allowed == denied || table.CheckDims("x", dims).Allowed == denied || d.At() != (start+after).Time() {
			t.Errorf("%v later: allowed %v at %v", after.Duration(), d.Allowed, d.At())
		}
		page, _ := table.List("", "", -1)
		if len(page) > 0 != denied || len(table.Verdicts("x", dims)) > 0 != denied || table.InForce() > 0 != (after < event.Minute) {
			t.Errorf("%v later: %d on the page, %d in force", after.Duration(), len(page), table.InForce())
		}
		if denied && d.RetryAfter() != (start+event.Minute-event.Micros(clock.Load())+event.Second-1).Duration().Truncate(time.Second) {
			t.Errorf("%v later: retry after %v", after.Duration(), d.RetryAfter())
		}
	}
	if table.Stale() || table.Now() != event.Micros(clock.Load()) {
		t.Errorf("stale: %v, at %v", table.Stale(), table.Now())
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
