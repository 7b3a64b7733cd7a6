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

// Throttle carries the action throttle out: requests wait for the end of the verdict that slows them down, not for long, and not many at
// once. It is what middlewares are made of; make it with NewThrottle.
type Throttle struct {
	table   *Table
	most    time.Duration
	waiting chan struct{} // one for each request that waits
}

// NewThrottle returns a Throttle for a table. delay is how long a request waits at most; 0 is 1 s, negative is no time. delayed is
// how many may wait at once; 0 is 1,000.
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

// Await waits when d is a denial whose action is throttle and the verdict ends soon enough, and returns the answer to a check then.
// Any other decision is returned as it is, and so is d when the verdict ends later, when too many wait, and when ctx ends before.
// It may keep dims while it waits.
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

// Await is Throttle.Await without a bound on how many wait: for those who have one. The time is bounded by the monotonic clock,
// whatever happens to the wall's.
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
