package shape

import (
	"context"
	"slices"
	"time"
)

// grace is the greatest delay of a turn behind its promise. It is for the machine's own delays: without it a
// microsecond of them would send away who waited until the last moment.
const grace = 50 * time.Millisecond

// catchUp is the delay behind its turn with which a waiter may leave without putting off those behind: the machine's
// delays don't add up. Where the interval is longer, that is. What was missed beyond it is missed, or many would
// leave at once after a long delay.
const catchUp = 10 * time.Millisecond

// Turn is a place in a line. One goroutine uses it, and calls Release or Leave at the end.
type Turn struct {
	s        *Shaper
	line     *line // nil: it has left
	most     time.Duration
	deadline time.Time
	wake     chan struct{}
	late     *Late     // why it was sent away
	up       bool      // its turn has come, and it asks
	at       time.Time // since when
}

// Wait waits until this one is the first of its line, and its time has come: then it returns nil, and
// the place stays taken until Release, Leave or Postpone. Otherwise it leaves, and returns a *Late
// or the context's error. It returns Most and the grace of 50 ms after Enter at the latest.
func (t *Turn) Wait(ctx context.Context) error {
	for {
		wait, err := t.look()
		if err != nil || wait <= 0 {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			t.Leave()
			return ctx.Err()
		case <-t.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// look returns how long to wait before looking again; 0 when the turn has come.
func (t *Turn) look() (time.Duration, error) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.late != nil {
		return 0, t.late
	}
	l, now := t.line, time.Now()
	left := t.deadline.Add(grace).Sub(now)
	if l.waiting[0] == t {
		at := l.turn(0)
		if !now.Before(at) {
			if now.Sub(at) > max(l.interval, catchUp) {
				at = now
			}
			t.up, t.at = true, at
			return 0, nil
		}
		if left > 0 {
			return min(at.Sub(now), left), nil
		}
	}
	if left > 0 {
		return left, nil
	}
	t.late = &Late{Turn: later(l.turn(slices.Index(l.waiting, t)), now)}
	t.leave()
	return 0, t.late
}

// Release leaves the line: the next one may leave an interval after this one's turn. Without a turn
// that has come it is Leave.
func (t *Turn) Release() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.line == nil {
		return
	}
	if t.up {
		t.line.free = t.at.Add(t.line.interval)
	}
	t.leave()
}

// Leave gives the place up: the others move up. It does nothing after Release.
func (t *Turn) Leave() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.line != nil {
		t.leave()
	}
}

// Postpone is for one whose turn has come, but who may not leave before from, nor may those behind:
// it keeps its place, and waits again. It returns a *Late when that is too late. Those behind for
// whom it is are told, too.
func (t *Turn) Postpone(from time.Time) error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.late != nil || t.line == nil {
		return &Late{Turn: from}
	}
	t.up = false
	t.s.begin(t.line, from)
	if t.late != nil {
		return t.late
	}
	return nil
}

func (t *Turn) leave() {
	l := t.line
	t.line = nil
	i := slices.Index(l.waiting, t)
	l.waiting = slices.Delete(l.waiting, i, i+1)
	switch {
	case len(l.waiting) == 0:
		t.s.rest(l, t.most)
	case i == 0:
		l.waiting[0].wakeUp()
	}
}

func (t *Turn) wakeUp() {
	select {
	case t.wake <- struct{}{}:
	default: // it is about to look
	}
}
