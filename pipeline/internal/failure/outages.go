package failure

import (
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/tallygate/tallygate/internal/base/retry"
)

// Outages counts errors, and logs the first one of each kind in an outage, and its end, however
// many workers meet it. Of refusals each code is a kind of its own.
type Outages struct {
	Log  *slog.Logger
	What string           // what the log names: "X is interrupted; retrying", "X works again"
	Kind func(error) Kind // nil: all are of one kind

	mu     sync.Mutex
	down   map[int32]bool  // the workers that are failing
	since  time.Time       // the first error of the outage
	empty  bool            // that nothing was published yet has been said
	said   map[string]bool // what was said of this outage: see topic
	counts map[Kind]uint64
	last   error
	lastAt time.Time
}

// Failed notes that a worker failed.
func (o *Outages) Failed(who int32, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last, o.lastAt = err, time.Now()
	if errors.Is(err, ErrNothing) { // Redis is there: the first publisher isn't yet
		if !o.empty {
			o.Log.Info(o.What+" is waiting", "reason", err.Error())
		}
		o.empty = true
		return
	}
	if len(o.down) == 0 {
		o.down, o.said, o.since = map[int32]bool{}, map[string]bool{}, o.lastAt
	}
	o.down[who] = true
	var kind Kind
	if o.Kind != nil {
		kind = o.Kind(err)
	}
	if o.counts == nil {
		o.counts = map[Kind]uint64{}
	}
	o.counts[kind]++
	about := kind.topic(err)
	if o.said[about] {
		return
	}
	o.said[about] = true
	log := o.Log
	if advice := kind.advice(); advice != "" {
		log = log.With("advice", advice)
	}
	log.Error(o.What+" is interrupted; retrying", "error", err)
}

// Worked notes that a worker succeeded.
func (o *Outages) Worked(who int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.down[who] {
		return
	}
	if delete(o.down, who); len(o.down) == 0 {
		o.Log.Info(o.What + " works again")
	}
}

// Gone forgets a worker that stopped while it was failing.
func (o *Outages) Gone(who int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.down, who)
}

// State returns whether a worker is failing now, and the latest error of any.
func (o *Outages) State() (failing bool, at time.Time, last error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.down) > 0, o.lastAt, o.last
}

// Outage is the present failure. The zero value says that nothing is.
type Outage struct {
	Since  time.Time // of the first error
	Reason Kind      // of the latest one
	Err    error     // the latest one
}

// Outage returns what is wrong now.
func (o *Outages) Outage() (is Outage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.down) == 0 {
		return is
	}
	is = Outage{Since: o.since, Err: o.last}
	if o.Kind != nil {
		is.Reason = o.Kind(o.last)
	}
	return is
}

// Errors returns how many there were of each kind.
func (o *Outages) Errors() map[Kind]uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.counts)
}

// NewPause makes the waits between attempts at Redis, or at the verdict topic.
func NewPause() *retry.Backoff {
	return &retry.Backoff{Min: 50 * time.Millisecond, Max: 2 * time.Second, Spread: true}
}
