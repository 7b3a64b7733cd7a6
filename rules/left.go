package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/verdict"
)

// Left is a key's remainder under a limit with `quota`, as it is published, without Seq.
type Left struct {
	Limit *Limit
	Of    event.Decimal // the limit of the key's tier, a bucket's burst
	Count event.Decimal
	Since event.Micros // the latest time that was counted
	Until event.Micros // when the window ends, or nothing of the count is left, if nothing more happens
}

// Over reports whether the Left only ends what was said before.
func (l *Left) Over() bool { return l.Until <= l.Since }

// Verdict is a Left as the world sees it. The key's dimensions are shared.
func (l *Left) Verdict(key []event.Dim) verdict.Verdict {
	r := l.Limit.Rule
	v := verdict.Verdict{
		Rule: l.Limit.Name, Public: r.Public, Key: key, State: verdict.Left, Action: r.Then.Action, APIs: r.covered(key),
		Count: l.Count, Limit: l.Of, Since: l.Since, Until: l.Until,
	}
	switch kind := l.Limit.Window.Kind; {
	case l.Over():
		v.Until = v.Since
	case kind.HasRate():
		v.Per = l.Limit.passesIn(l.Of)
	case l.Limit.PerMin == l.Limit.PerMax:
		v.Per = l.Limit.Window.Per
	}
	return v
}

// Left returns what the last Step, Rejudge or Command says is left under limits with `quota`. It is
// valid until the next one. It is not in Result, since each event would pay for a larger one.
func (p *report) Left() []Left { return p.left }

// LeftNow is Left for a state as it is: of all limits with `quota` that the key has counts under.
func (p *Stepper) LeftNow(state, key []byte) []Left {
	p.begin()
	old := p.read(state)
	var res Result
	p.each(nil, &old, key, old.Latest, &res, func(_ []byte, sec keystate.Section, l *Limit) []byte {
		window := p.take(sec)
		latest := l.Window.Latest(window)
		limit, known := l.toldLimit(&p.extras, p.allow, key, latest)
		if l.Quota && known && latest != event.NoTime && !p.Fuses.shadow(l) && !p.isExempt(l, key, latest) {
			p.noteLeft(l, window, limit, limit, latest)
		}
		return nil
	})
	p.changes = p.changes[:0]
	return p.left
}

// leftBy notes what an event, which was judged, leaves of a window. before is the limit by which
// something may have been said: see toldBy. What went into an ended window alone leaves the current
// one's count as it was.
func (p *report) leftBy(l *Limit, f *facts, before event.Decimal) {
	tier := before != Unlimited && f.limit != before // it is another one
	if f.exempt || !f.counts && !f.took && !tier {
		return
	}
	if _, current := f.current(l); current {
		p.noteLeft(l, f.window, f.limit, before, f.latest)
	}
}

// leftAnew notes what changed rules leave of what a window has counted. It ends what was said of keys
// that are exempt now, and under rules that are in shadow mode now.
func (p *report) leftAnew(l *Limit, f *facts, shadow bool) {
	switch {
	case f.exempt || shadow || f.limit == Unlimited:
		p.leftOver(l, f.latest)
	case l.Window.CountAt(f.window, f.latest) > 0:
		p.noteLeft(l, f.window, f.limit, f.limit, f.latest)
	}
}

// noteLeft notes what a window leaves at a moment that is not before its latest time. A tier without a
// limit ends what was said by the limit of the tier before.
func (p *report) noteLeft(l *Limit, window []byte, limit, before event.Decimal, at event.Micros) {
	switch {
	case limit != Unlimited:
		p.left = append(p.left, Left{Limit: l, Of: limit, Count: l.Window.CountAt(window, at), Since: at, Until: leftUntil(l, window, at)})
	case before != Unlimited:
		p.leftOver(l, at)
	}
}

// leftOver ends what was said.
func (p *report) leftOver(l *Limit, at event.Micros) {
	p.left = append(p.left, Left{Limit: l, Since: at, Until: at})
}

// leftUntil is until when a window's count says what is left.
func leftUntil(l *Limit, window []byte, at event.Micros) event.Micros {
	if l.Window.Kind.Slides() {
		if len(window) > 0 {
			at = l.Window.Latest(window)
		}
		return keystate.Later(at, l.Window.Per)
	}
	_, until := l.Window.Bounds(window, at)
	return until
}

// toldBy is the limit by which something may have been said that is still known when an event comes;
// Unlimited for none.
func toldBy(l *Limit, x *keystate.Extras, allow allowances, window, key []byte, at event.Micros) (limit event.Decimal) {
	limit = Unlimited
	if latest := l.Window.Latest(window); l.Quota && len(window) > 0 && at < leftUntil(l, window, latest) {
		limit, _ = l.toldLimit(x, allow, key, latest)
	}
	return limit
}
