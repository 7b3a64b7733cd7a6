package enforce

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/event"
)

func now() event.Micros { return event.FromTime(time.Now()) }

// steps compares the wall clock with the monotonic one. The wall clock may be wrong for a while:
// before NTP sets it, when somebody does, when a machine wakes up. Checks use it all the same,
// since until is wall time. But verdicts that it ends are forgotten only when it is believed, and
// those that a wrong clock made the table forget are fetched again.
type steps struct {
	count   atomic.Uint64 // steps so far, either way
	started time.Time     // when the table was made, with the monotonic clock

	mu    sync.Mutex
	wall  event.Micros // both clocks when last observed
	mono  time.Duration
	ahead event.Micros  // how much of the wall time is not believed yet
	since time.Duration // the last step forward
}

const (
	// stepAtLeast is more than NTP slews between two observations, and than a leap second.
	stepAtLeast = 2 * event.Second
	// believedAfter is the time that the wall clock must run after a step forward to be believed. A step back is
	// believed at once.
	believedAfter = 10 * time.Minute
)

func (s *steps) init(started time.Time) { s.started, s.wall = started, event.FromTime(started) }

// look returns the wall time, and notes whether that clock made a step.
func (s *steps) look() event.Micros {
	at := time.Now()
	s.observe(event.FromTime(at), at.Sub(s.started))
	return event.FromTime(at)
}

// over returns the time until which verdicts must have ended to be freed: the grace ago, as far as
// the wall time is believed.
func (s *steps) over(at event.Micros, grace time.Duration) event.Micros {
	return min(at, s.believed()) - event.FromDuration(grace)
}

// observe compares the two clocks. mono is the time since the table was made.
func (s *steps) observe(wall event.Micros, mono time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	jump := wall - s.wall - event.FromDuration(mono-s.mono)
	s.wall, s.mono = wall, mono
	if max(jump, -jump) >= stepAtLeast {
		s.ahead = max(s.ahead+jump, 0)
		if jump > 0 {
			s.since = mono
		}
		s.count.Add(1)
	}
	if mono-s.since >= believedAfter {
		s.ahead = 0
	}
}

// believed returns the time that has certainly passed.
func (s *steps) believed() event.Micros {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wall - s.ahead
}
