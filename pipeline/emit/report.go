package emit

import (
	"log/slog"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/logonce"
)

// reporter tells the log what an application would miss otherwise. It works in a goroutine of its own:
// a log may block, and neither Emit nor the sender may.
type reporter struct {
	log    *slog.Logger
	counts *counters
	wake   chan struct{} // there is something to look at

	since   time.Time // when it was first seen that Kafka fails; zero: it does not
	outage  ErrorKind // what was said last of an outage that goes on; "": none was
	kinds   map[ErrorKind]*logonce.Line
	dropped Dropped // how many were told
	drops   [reasons]time.Time
	in1970  bool // that was told
}

func newReporter(log *slog.Logger, counts *counters) *reporter {
	return &reporter{log: log, counts: counts, wake: make(chan struct{}, 1), kinds: map[ErrorKind]*logonce.Line{}}
}

// look has the reporter look at the counters. It never blocks.
func (r *reporter) look() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run reports until done is closed, and what came until then.
func (r *reporter) run(done <-chan struct{}) {
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for {
		select {
		case <-r.wake:
		case <-again.C:
		case <-done:
			r.drop(time.Time{})
			return
		}
		r.suspects()
		wait := soonest(r.connection(time.Now()), r.drop(time.Now()))
		if wait > 0 {
			again.Reset(wait)
		}
	}
}

// soonest is the shorter of two times, of which 0 is none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// outageAfter is the time for which Kafka has to fail until it is told: partitions change their leaders within less,
// and nothing is lost by that.
const outageAfter = time.Second

// connection tells of an outage, of another reason for it, and of its end. Of errors that come and go
// each kind is told at most once a minute. It returns when to look again; 0: when something changes.
func (r *reporter) connection(now time.Time) (wait time.Duration) {
	failure := r.counts.lastErr.Load()
	if failure == nil {
		if r.outage != "" {
			r.log.Info("events reach Kafka again")
		}
		r.since, r.outage = time.Time{}, ""
		return 0
	}
	if r.since.IsZero() {
		r.since = now
	}
	kind := KindOf(*failure)
	if kind == r.outage || kind == ErrorRefused { // what is refused is dropped, and told as that
		return 0
	}
	if lasted := now.Sub(r.since); lasted < outageAfter {
		return outageAfter - lasted
	}
	if r.kinds[kind] == nil {
		r.kinds[kind] = &logonce.Line{}
	}
	leftOut, due := r.kinds[kind].Due()
	if !due {
		return 0
	}
	log := r.log
	if advice := kind.advice(); advice != "" {
		log = log.With("advice", advice)
	}
	log.Error("events cannot be sent to Kafka; they wait, and it is tried again", "reason", string(kind), "error", *failure, "left_out", leftOut)
	r.outage = kind
	return 0
}

// suspects tells once of events that look like a mistake.
func (r *reporter) suspects() {
	if n := r.counts.in1970.Load(); n > 0 && !r.in1970 {
		r.in1970 = true
		r.log.Warn("events look like a mistake; further ones are counted, and not logged", "reason", event.SuspectTime1970, "advice", event.SuspectAdvice(event.SuspectTime1970))
	}
}

// drop tells of dropped events, by reason, and returns when to look again; 0: only when there are more.
// The zero time is the end: all is told.
func (r *reporter) drop(now time.Time) (wait time.Duration) {
	for reason := range r.dropped {
		n := r.counts.dropped[reason].Load()
		more := n - r.dropped[reason]
		if more == 0 {
			continue
		}
		if since := now.Sub(r.drops[reason]); !now.IsZero() && !r.drops[reason].IsZero() && since < logonce.Every {
			if left := logonce.Every - since; wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		r.dropped[reason], r.drops[reason] = n, now
		log := r.log
		if err := r.errorOf(Reason(reason)); err != nil {
			log = log.With("error", err)
		}
		log.Error("events are dropped, and will not be counted", "reason", Reason(reason).String(), "events", more, "advice", Reason(reason).advice())
	}
	return wait
}

func (r *reporter) errorOf(reason Reason) error {
	switch err := r.counts.invalid.Load(); {
	case reason == Invalid && err != nil:
		return *err
	case reason == Refused && r.counts.refused.Load() != nil:
		return *r.counts.refused.Load()
	}
	return nil
}

// advice tells developers what to do about dropped events.
func (r Reason) advice() string {
	return [reasons]string{
		Invalid:     "mend the events: each needs an API, and values within the bounds of the reference",
		QueueFull:   "find out why Kafka takes them more slowly than they come; MaxEvents and MaxBytes of emit.Config are how many may wait",
		Closed:      "call Close when nothing emits any more",
		Refused:     "see the topic's max.message.bytes and policies",
		Undelivered: "give Close more time; they were waiting for Kafka when it ended",
	}[r]
}
