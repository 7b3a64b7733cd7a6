package shape

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Shaper holds the lines of all keys. The zero value is ready to use. Its methods may be called by
// many goroutines.
type Shaper struct {
	busy atomic.Int64 // how many lines there are

	mu    sync.Mutex
	lines map[string]*line
	idle  int // lines in which nobody waits
}

// maxIdle bounds how many lines are remembered in which nobody waits.
const maxIdle = 10_000

// same is the distance within which two moments may be one that two callers read from two clocks, one after the
// other. Nobody need be woken for that.
const same = time.Millisecond

// Entry describes a newcomer to a line.
type Entry struct {
	Key string
	// From is the moment at which the line begins to move: it replaces what earlier callers gave. The zero value is
	// now.
	From time.Time
	// Interval is the time between two who leave.
	Interval time.Duration
	// Most bounds the newcomer's wait.
	Most time.Duration
	// Room bounds the line's length, this one included. 0 is any number. A negative value is none: Enter only tells
	// when the turn would be.
	Room int
	// Behind enters only a line that is there, and leaves From and Interval to it: it is for those
	// whom nothing denies, but who may not overtake. Where nobody waits, they enter only if their
	// turn is not too late.
	Behind bool
}

// Late is the error of those who would wait too long, or for whom there is no room.
type Late struct {
	Turn time.Time // when their turn would have been
	Full bool      // there was no room
}

// Error says why.
func (e *Late) Error() string {
	if e.Full {
		return "shape: too many wait"
	}
	return fmt.Sprintf("shape: its turn would be at %v, which is too late", e.Turn.Format(time.RFC3339Nano))
}

// Busy reports whether there is any line. It is one atomic load.
func (s *Shaper) Busy() bool { return s.busy.Load() != 0 }

// Has reports whether a key has a line.
func (s *Shaper) Has(key []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines[string(key)] != nil
}

// Enter joins the end of a key's line. It returns a *Late when that is no use. With Entry.Behind,
// no turn and no error mean that there is no line to wait in.
func (s *Shaper) Enter(e Entry) (*Turn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	l := s.lines[e.Key]
	switch {
	case l == nil && e.Behind:
		return nil, nil //nolint:nilnil // as Enter says
	case l == nil:
		l = &line{key: e.Key}
	}
	if !e.Behind {
		l.interval = max(e.Interval, 0)
		if from := later(e.From, now); from.Sub(l.from).Abs() >= same || len(l.waiting) == 0 {
			s.begin(l, from)
		}
	} else if l.from.After(now) { // what the line waits for is over: this one was not denied by it
		s.begin(l, now)
	}
	at := later(l.turn(len(l.waiting)), now)
	switch late := at.Sub(now) > e.Most; {
	case late && e.Behind && len(l.waiting) == 0:
		return nil, nil //nolint:nilnil // as Enter says
	case e.Room < 0, e.Room > 0 && len(l.waiting) >= e.Room:
		return nil, &Late{at, true}
	case late:
		return nil, &Late{at, false}
	}
	t := &Turn{s: s, line: l, most: e.Most, deadline: now.Add(e.Most), wake: make(chan struct{}, 1)}
	s.add(l)
	l.waiting = append(l.waiting, t)
	return t, nil
}

// begin makes a line begin to move at another time.
func (s *Shaper) begin(l *line, from time.Time) {
	if l.from.Equal(from) {
		return
	}
	l.from = from
	if len(l.waiting) == 0 {
		return
	}
	kept, first := l.waiting[:0], l.waiting[0]
	for _, t := range l.waiting {
		if at := l.turn(len(kept)); !t.up && at.After(t.deadline) {
			t.late, t.line = &Late{Turn: at}, nil
			t.wakeUp()
			continue
		}
		kept = append(kept, t)
	}
	clear(l.waiting[len(kept):])
	l.waiting = kept
	if len(kept) == 0 {
		s.rest(l, first.most)
		return
	}
	kept[0].wakeUp()
}

// add makes sure that a line is known, and not about to go.
func (s *Shaper) add(l *line) {
	if l.expiry != nil {
		l.expiry.Stop()
		l.expiry = nil
		s.idle--
		return
	}
	if s.lines == nil {
		s.lines = map[string]*line{}
	}
	if s.lines[l.key] == nil {
		s.lines[l.key] = l
		s.busy.Add(1)
	}
}

// rest is for a line that became empty. It goes, at once or when the next turn has come. Where that
// is later than the last one would have waited, nobody would wait for it.
func (s *Shaper) rest(l *line, most time.Duration) {
	left := time.Until(l.free)
	if left <= 0 || left > most || s.idle >= maxIdle {
		s.drop(l)
		return
	}
	s.idle++
	var expiry *time.Timer
	expiry = time.AfterFunc(left, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.expiry == expiry { // nobody has come meanwhile
			l.expiry = nil
			s.idle--
			s.drop(l)
		}
	})
	l.expiry = expiry
}

func (s *Shaper) drop(l *line) {
	if s.lines[l.key] == l {
		delete(s.lines, l.key)
		s.busy.Add(-1)
	}
}

// line is those who wait for one key.
type line struct {
	key      string
	interval time.Duration
	from     time.Time   // nobody leaves before
	free     time.Time   // nor before this: an interval after the last one
	waiting  []*Turn     // in order
	expiry   *time.Timer // of a line in which nobody waits; nil: somebody does
}

// turn returns the moment at which the i-th of those who wait may leave.
func (l *line) turn(i int) time.Time {
	const forever = math.MaxInt64 / 4
	wait := time.Duration(forever)
	if l.interval == 0 || i <= int(forever/l.interval) {
		wait = time.Duration(i) * l.interval
	}
	return later(l.from, l.free).Add(wait)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
