package emit

import "sync/atomic"

// Reason says why an event was dropped.
type Reason uint8

// The reasons.
const (
	Invalid   Reason = iota // it is no event: see event.Event's Validate; or it is over 64 KiB
	QueueFull               // MaxEvents or MaxBytes were waiting already
	Closed                  // Close had been called
	// The broker refuses this record (too large, by policy, …) and always will.
	Refused
	// Close's context ended first; it may have reached the broker all the same.
	Undelivered
	reasons
)

// String is the reason as a label: queue_full.
func (r Reason) String() string {
	return [...]string{"invalid", "queue_full", "closed", "refused", "undelivered"}[r]
}

// Drop describes events that will not be sent.
type Drop struct {
	Reason Reason
	Events int
	Err    error // what was wrong with an Invalid or a Refused one, else nil
}

// Dropped counts dropped events by reason.
type Dropped [reasons]uint64

// Total is the sum over all reasons.
func (d Dropped) Total() (n uint64) {
	for _, v := range d {
		n += v
	}
	return n
}

// Stats is what an Emitter did since New. The numbers are read one after another, so they
// need not add up while events are on their way.
type Stats struct {
	Emitted     uint64  // events that the broker acknowledged
	Dropped     Dropped // events that will not be sent, by Reason
	Queued      int     // events that wait or are on their way
	QueuedBytes int     // their bytes, as MaxBytes counts them
	Retries     uint64  // batches that were sent again
	LastError   error   // the latest from the broker or on the way to it, nil when all is well
}

// counters are what Stats shows.
type counters struct {
	emitted atomic.Uint64
	dropped [reasons]atomic.Uint64
	retries atomic.Uint64
	lastErr atomic.Pointer[error]
}

func (c *counters) setErr(err error) {
	if err == nil {
		c.lastErr.Store(nil)
		return
	}
	c.lastErr.Store(&err)
}

// Stats returns the counts so far, for the application's own metrics.
func (e *Emitter) Stats() Stats {
	s := Stats{Emitted: e.counts.emitted.Load(), Retries: e.counts.retries.Load()}
	s.Queued, s.QueuedBytes = e.queued.used()
	for r := range s.Dropped {
		s.Dropped[r] = e.counts.dropped[r].Load()
	}
	if err := e.counts.lastErr.Load(); err != nil {
		s.LastError = *err
	}
	return s
}

func (e *Emitter) drop(d Drop) {
	e.counts.dropped[d.Reason].Add(uint64(d.Events))
	e.cfg.OnDrop(d)
}
