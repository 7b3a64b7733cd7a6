package enforce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// Throttle carries out the action throttle: requests wait in line for the end of their verdict, and
// then leave one by one, at the limit's rate. Those of one key and rule leave in the order in which
// they came. The wait is bounded, and so is the number of those who wait. Middlewares use it. Make it
// with NewThrottle; its methods may be called by many goroutines. All of a table share its lines.
type Throttle struct {
	table *Table
	cfg   ThrottleConfig

	waiting                      atomic.Int64
	released, gaveUp, turnedAway atomic.Uint64
}

// ThrottleConfig configures a Throttle. The zero value is ready to use.
type ThrottleConfig struct {
	// MaxDelay bounds a request's wait: 0 is 1 s, and a negative value never waits. One whose turn would come later
	// is denied at once.
	MaxDelay time.Duration
	// MaxDelayed bounds the waiters of a process; 0 is 1,000. More are denied.
	MaxDelayed int
	// MaxDelayedPerKey bounds those of one key and rule; 0 is 100.
	MaxDelayedPerKey int
}

// ThrottleStats counts throttled requests by their outcome.
type ThrottleStats struct {
	Waiting    int    // now
	Released   uint64 // waited, and were allowed
	GaveUp     uint64 // waited, and were denied, or their clients left
	TurnedAway uint64 // denied at once: their turn would have come too late, or too many waited
}

// NewThrottle returns a Throttle for a table: NewThrottleWith, for callers that know two bounds only.
func NewThrottle(table *Table, delay time.Duration, delayed int) (*Throttle, error) {
	return NewThrottleWith(table, ThrottleConfig{MaxDelay: delay, MaxDelayed: delayed})
}

// NewThrottleWith returns a Throttle for a table.
func NewThrottleWith(table *Table, cfg ThrottleConfig) (*Throttle, error) {
	if table == nil {
		return nil, errNoTable
	}
	if cfg.MaxDelayed < 0 || cfg.MaxDelayedPerKey < 0 {
		return nil, fmt.Errorf("enforce: MaxDelayed is %d and MaxDelayedPerKey %d, want none negative", cfg.MaxDelayed, cfg.MaxDelayedPerKey)
	}
	cfg.MaxDelay = cmp.Or(cfg.MaxDelay, time.Second)
	cfg.MaxDelayed = cmp.Or(cfg.MaxDelayed, 1000)
	cfg.MaxDelayedPerKey = cmp.Or(cfg.MaxDelayedPerKey, 100)
	return &Throttle{table: table, cfg: cfg}, nil
}

var errNoTable = errors.New("enforce: the table is nil: make it with NewTable")

// Stats returns what has become of this Throttle's requests.
func (t *Throttle) Stats() ThrottleStats {
	return ThrottleStats{int(t.waiting.Load()), t.released.Load(), t.gaveUp.Load(), t.turnedAway.Load()}
}

// Busy reports whether anyone waits in the table's lines. Then requests without a verdict may have to
// wait, too: those of the same key came earlier. It is one atomic load.
func (t *Throttle) Busy() bool { return t.table.lines.Busy() && t.cfg.MaxDelay >= 0 }

// Await waits for the turn of a throttled request, and checks again. d is the result of a check. If
// it is a denial whose action is throttle, the turn comes at its verdict's end, behind those who came
// earlier. If it is allowed, and others wait for a key that these dimensions have, it comes after
// them. Any other decision is returned as it is.
//
// A denial is returned when the turn would come too late, when too many wait, or when ctx ends.
// Until is then when a turn would be free. dims must not change while it waits.
func (t *Throttle) Await(ctx context.Context, d Decision, api string, dims []event.Dim) Decision {
	return t.AwaitWithin(ctx, t.cfg.MaxDelay, d, api, dims)
}

// AwaitWithin is Await for a request that waits less than MaxDelay.
func (t *Throttle) AwaitWithin(ctx context.Context, most time.Duration, d Decision, api string, dims []event.Dim) Decision {
	if !t.Concerns(d) || most < 0 {
		return d
	}
	w := waiter{throttle: t, api: api, dims: dims, most: min(most, t.cfg.MaxDelay)}
	return w.await(ctx, d)
}

// Concerns reports whether Await may do anything about a decision. Where nobody waits it is one atomic
// load for allowed requests.
func (t *Throttle) Concerns(d Decision) bool {
	if d.Allowed {
		return t.Busy()
	}
	return d.Action() == verdict.ActThrottle && t.cfg.MaxDelay >= 0
}

// enter takes one of the MaxDelayed places, if there is one.
func (t *Throttle) enter() bool {
	if most := t.cfg.MaxDelayed; t.waiting.Add(1) > int64(most) && most > 0 {
		t.waiting.Add(-1)
		return false
	}
	return true
}

// Await is Throttle.Await without a bound on how many wait, for callers that have their own. The
// monotonic clock bounds the time, whatever happens to the wall clock.
func (t *Table) Await(ctx context.Context, d Decision, most time.Duration, api string, dims []event.Dim) Decision {
	return (&Throttle{table: t, cfg: ThrottleConfig{MaxDelay: most}}).Await(ctx, d, api, dims)
}
