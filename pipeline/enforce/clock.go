package enforce

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
)

// steps compares the wall's clock with the monotonic one. The wall's may be wrong for a while: before NTP has set it, when somebody
// sets it, when a machine wakes up. A check goes by it all the same, since until is a wall's time; but what it ends is
// only forgotten by a clock that is believed, and what a wrong one made the table forget is fetched again.
type steps struct {
	count atomic.Uint64 // steps so far, either way

	mu    sync.Mutex
	wall  event.Micros // both clocks at the last look
	mono  time.Duration
	ahead event.Micros  // how much of the wall's time is not believed yet
	since time.Duration // the last step forward
}

const (
	// stepAtLeast is more than NTP slews between two looks, and than a leap second.
	stepAtLeast = 2 * event.Second
	// believedAfter is how long the wall's clock must go on after a step forward to be believed. One backward is believed at once.
	believedAfter = 10 * time.Minute
)

// look compares the two clocks. mono is the time since the table was made.
func (s *steps) look(wall event.Micros, mono time.Duration) {
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

// believed returns the time that is certainly over.
func (s *steps) believed() event.Micros {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wall - s.ahead
}

// look looks at the clocks, and returns what the wall's says.
func (t *Table) look() event.Micros {
	at := time.Now()
	t.steps.look(event.FromTime(at), at.Sub(t.started))
	return event.FromTime(at)
}

// SnapshotsWanted grows when the table needs a snapshot of each shard although it has lost no change: when the wall's clock made a
// step. What ended by a wrong clock may be in force by the right one. A feed takes a snapshot each time it finds another number.
func (t *Table) SnapshotsWanted() uint64 { return t.steps.count.Load() }

// unattended is the system's time, for checks that don't go by Run's clock.
func (t *Table) unattended() event.Micros {
	t.lookForRun()
	return now()
}

// lookForRun puts the table in doubt when nobody has called Run in time, and says so in the log, once.
func (t *Table) lookForRun() {
	if t.neglected() && t.told.CompareAndSwap(false, true) {
		t.cfg.Logger.Error("nobody runs the table of verdicts: those that end stay in memory, and it cannot notice that it falls behind. Call Table.Run beside the feed")
		t.watch()
	}
}

// neglected reports whether nobody has called Run in time.
func (t *Table) neglected() bool { return !t.ran.Load() && time.Since(t.started) > runWithin }

// runWithin is how long after NewTable the table may be used without Run.
const runWithin = 10 * time.Second
