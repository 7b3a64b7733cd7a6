package enforce

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/shape"
	"github.com/tallygate/tallygate/verdict"
)

// waiter is a request that waits, in one line after the other: several verdicts may concern it.
type waiter struct {
	throttle *Throttle
	api      string
	dims     []event.Dim
	most     time.Duration

	began  time.Time
	placed bool     // it takes one of the places for those who wait
	waited bool     // it was in a line
	passed []string // the lines that have let it through

	// The same moment by both clocks: verdicts end by the wall clock, and those who wait go by the
	// monotonic one.
	wall event.Micros
	mono time.Time
}

// place is a waiter's line and turn.
type place struct {
	rule lineRule
	key  string
	turn *shape.Turn // nil: it has not entered
}

// await is Throttle.AwaitWithin for decisions that it concerns.
func (w *waiter) await(ctx context.Context, d Decision) Decision {
	w.readClocks()
	w.began = w.mono
	if !d.Allowed && (d.until-w.wall).Duration() > w.most && !w.throttle.Busy() {
		w.throttle.turnedAway.Add(1)
		return d
	}
	defer func() {
		if w.placed {
			w.throttle.waiting.Add(-1)
		}
	}()
	for goesOn := true; goesOn; {
		p, err := w.enter(&d)
		switch {
		case err != nil:
			d, goesOn = w.refused(p, d, err), false
		case p.turn == nil:
			goesOn = false
		default:
			w.waited = true
			d, goesOn = w.hold(ctx, p, d)
		}
	}
	w.count(d)
	return d
}

func (w *waiter) count(d Decision) {
	t := w.throttle
	switch {
	case w.waited && d.Allowed:
		t.released.Add(1)
	case w.waited:
		t.gaveUp.Add(1)
	case throttled(d):
		t.turnedAway.Add(1)
	}
}

func throttled(d Decision) bool { return !d.Allowed && d.Action() == verdict.ActThrottle }

func (w *waiter) readClocks() { w.wall, w.mono = w.throttle.table.cfg.now(), time.Now() }

// enter enters the line that d asks for. Without one the place is empty, and d is the answer: it was
// checked again when its verdict was gone.
func (w *waiter) enter(d *Decision) (p place, err error) {
	t := w.throttle.table
	for range 3 {
		if !throttled(*d) {
			return w.enterBehind(*d)
		}
		rule, ok := t.ruleOf(*d, w.api, w.dims)
		if !ok {
			*d = t.CheckDims(w.api, w.dims)
			continue
		}
		w.readClocks()
		p.rule = rule
		key, ok := rule.appendKey(nil, w.api, w.dims)
		if !ok {
			break
		}
		p.key = string(key)
		t.lines.note(rule)
		e := w.entry(p.key)
		e.From, e.Interval = w.ends(*d), rule.verdict.Interval().Duration()
		p.turn, err = t.lines.Enter(e)
		return p, err
	}
	return place{}, nil
}

// enterBehind enters a line in which others wait for a verdict that does not deny this request any
// more.
func (w *waiter) enterBehind(d Decision) (p place, err error) {
	t := w.throttle.table
	rules := t.lines.rules.Load()
	if !d.Allowed || rules == nil || !t.Enabled() {
		return p, nil
	}
	var space [lineKeyBytes]byte
	for _, p.rule = range *rules {
		if !p.rule.verdict.Covers(w.api) {
			continue
		}
		key, ok := p.rule.appendKey(space[:0], w.api, w.dims)
		if !ok || !t.lines.Has(key) {
			continue
		}
		if p.key = string(key); slices.Contains(w.passed, p.key) {
			continue
		}
		w.readClocks()
		e := w.entry(p.key)
		e.Behind = true
		if p.turn, err = t.lines.Enter(e); p.turn != nil || err != nil {
			return p, err
		}
	}
	return place{}, nil
}

func (w *waiter) entry(key string) shape.Entry {
	e := shape.Entry{Key: key, Most: w.most - w.mono.Sub(w.began), Room: w.throttle.cfg.MaxDelayedPerKey}
	if w.placed = w.placed || w.throttle.enter(); !w.placed {
		e.Room = -1
	}
	return e
}

// hold waits for the turn, and checks again. goesOn is false when d is the answer.
func (w *waiter) hold(ctx context.Context, p place, d Decision) (_ Decision, goesOn bool) {
	defer p.turn.Leave()
	for {
		if err := p.turn.Wait(ctx); err != nil {
			w.readClocks()
			return w.refused(p, d, err), false
		}
		next := w.throttle.table.CheckDims(w.api, w.dims)
		w.readClocks()
		switch {
		case next.Allowed, throttled(next) && next.Rule() != p.rule.verdict.Rule:
			// In another line it would hold up those behind it, and two could hold up each other.
			p.turn.Release()
			w.passed = append(w.passed, p.key)
			return next, true
		case !throttled(next):
			return next, false
		}
		if d = next; p.turn.Postpone(w.ends(d)) != nil {
			continue // Wait tells
		}
	}
}

// ends converts the end of a decision's verdict to the monotonic clock.
func (w *waiter) ends(d Decision) time.Time { return w.mono.Add((d.until - w.wall).Duration()) }

// refused is the decision of one who does not wait, or not any longer: it is denied until its turn
// would have come.
func (w *waiter) refused(p place, d Decision, err error) Decision {
	late, ok := errors.AsType[*shape.Late](err)
	switch {
	case ok:
		wait := late.Turn.Sub(w.mono)
		until := w.wall + event.FromDuration(wait)
		if wait%time.Microsecond > 0 {
			until++
		}
		return Decision{until: until, at: w.wall, by: p.rule.verdict}
	case !d.Allowed: // its client has left
		return d
	}
	return Decision{until: w.wall + min(p.rule.verdict.Interval(), event.Day), at: w.wall, by: p.rule.verdict}
}
