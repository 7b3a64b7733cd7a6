package emit

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/tallygate/tallygate/event"
)

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

// error is why, for those who are told of single events.
func (d *Drop) error() error {
	if d.Err != nil {
		return d.Err
	}
	return fmt.Errorf("emit: the event is dropped: %s", d.Reason)
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

// Stats counts an Emitter's events since New. The numbers are read one after another, so they need not add up while
// events are on their way.
type Stats struct {
	Emitted     uint64  // events that the broker acknowledged
	Dropped     Dropped // events that will not be sent, by Reason
	Queued      int     // events that wait or are on their way
	QueuedBytes int     // their bytes, as MaxBytes counts them
	Retries     uint64  // batches that were sent again
	LastError   error   // the latest from the broker or on the way to it, nil when all is well

	Errors map[ErrorKind]uint64 // attempts that failed, of requests and of looking for partitions
	// Suspects counts events that were sent and look like a mistake, by reason: event.Suspects. So far
	// it is event.SuspectTime1970.
	Suspects map[string]uint64
}

// counters back Stats.
type counters struct {
	emitted atomic.Uint64
	dropped [reasons]atomic.Uint64
	retries atomic.Uint64
	lastErr atomic.Pointer[error]
	errors  [len(ErrorKinds)]atomic.Uint64 // by the index of the kind
	in1970  atomic.Uint64                  // events
	invalid atomic.Pointer[error]          // of the latest event that was none
	refused atomic.Pointer[error]          // of the latest events that Kafka refused
}

// failed notes an error of Kafka, or of the way to it; nil: all is well again.
func (e *Emitter) failed(err error) {
	if err == nil {
		if e.counts.lastErr.Swap(nil) != nil {
			e.report.look()
		}
		return
	}
	e.counts.errors[slices.Index(ErrorKinds[:], KindOf(err))].Add(1)
	e.counts.lastErr.Store(&err)
	e.report.look()
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
	s.Errors = make(map[ErrorKind]uint64, len(ErrorKinds))
	for i, kind := range ErrorKinds {
		s.Errors[kind] = e.counts.errors[i].Load()
	}
	s.Suspects = map[string]uint64{event.SuspectTime1970: e.counts.in1970.Load()}
	return s
}

func (e *Emitter) drop(d Drop) {
	switch d.Reason {
	case Invalid:
		err := d.Err // a copy, so that other drops allocate nothing
		e.counts.invalid.Store(&err)
	case Refused:
		err := d.Err
		e.counts.refused.Store(&err)
	}
	e.counts.dropped[d.Reason].Add(uint64(d.Events))
	e.report.look()
	e.cfg.OnDrop(d)
}
