package enforce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Throttle carries out the action throttle: requests wait for the end of their verdict, for a
// limited time and a limited number at once. Middlewares use it. Make it with NewThrottle; its
// methods may be called by many goroutines.
type Throttle struct {
	table   *Table
	most    time.Duration
	waiting chan struct{} // one for each request that waits
}

// NewThrottle returns a Throttle for a table. delay is how long a request waits at most: 0 is 1 s,
// and a negative value never waits. delayed is how many may wait at once; 0 is 1,000.
func NewThrottle(table *Table, delay time.Duration, delayed int) (*Throttle, error) {
	if table == nil {
		return nil, errNoTable
	}
	if delayed < 0 {
		return nil, fmt.Errorf("enforce: MaxDelayed is %d, want none negative", delayed)
	}
	return &Throttle{table: table, most: cmp.Or(delay, time.Second), waiting: make(chan struct{}, cmp.Or(delayed, 1000))}, nil
}

var errNoTable = errors.New("enforce: the table is nil: make it with NewTable")

// Await waits for the end of d's verdict, if d is a denial whose action is throttle, and checks
// again. It returns d itself when it is any other decision, when its verdict ends too late, when
// too many wait, or when ctx ends first. dims must not change while it waits.
func (t *Throttle) Await(ctx context.Context, d Decision, api string, dims []event.Dim) Decision {
	if d.Allowed || d.Action() != verdict.ActThrottle || t.most < 0 {
		return d
	}
	select {
	case t.waiting <- struct{}{}:
		defer func() { <-t.waiting }()
		return t.table.Await(ctx, d, t.most, api, dims)
	default:
		return d
	}
}

// Await is Throttle.Await without a bound on how many wait, for callers that have their own. The
// monotonic clock bounds the time, whatever happens to the wall clock.
func (t *Table) Await(ctx context.Context, d Decision, most time.Duration, api string, dims []event.Dim) Decision {
	deadline := time.Now().Add(most)
	for !d.Allowed && d.Action() == verdict.ActThrottle {
		left := (d.Until - now()).Duration()
		if left > time.Until(deadline) {
			return d
		}
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
			timer.Stop()
			return d
		case <-timer.C:
		}
		d = t.CheckDims(api, dims)
	}
	return d
}
