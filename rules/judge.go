package rules

import (
	"math/bits"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/verdict"
	"github.com/tallygate/tallygate/windows"
)

// CandidateName names the verdicts of the limit's candidate; "" when it has none.
func (l *Limit) CandidateName() string {
	if !l.Tries {
		return ""
	}
	return l.Name + candidateSuffix
}

// candidateSuffix stands behind the limit's name in the verdicts of a candidate.
const candidateSuffix = "/candidate"

// judge brings a verdict up to date with the window that an event went into. A block that is issued
// comes without its cause, which is the event.
//
// All the world knows of a block is what was published, so that is what in force means.
func (l *Limit) judge(s *keystate.Slot, f *facts) outcome {
	if s.Had && f.latest < s.Block.Until {
		return l.holds(s, f)
	}
	if !f.adds || f.exempt || f.limit == Unlimited || l.Rule.Then.None {
		return none
	}
	count, over := l.over(f)
	if !over {
		return none
	}
	l.issue(s, f, count)
	return issued
}

// quiet reports whether a hit under a plain limit that has no block triggers none, so that
// there is nothing to judge: most events are such.
func (l *Limit) quiet(added windows.Added) bool {
	return added.Count <= l.quietTo && !added.Ended
}

// quietest is the greatest count that triggers no verdict: see passes.
func (l *Limit) quietest() event.Decimal {
	if l.Rule.Then.reached() {
		return full(&l.Window, l.threshold()) - 1
	}
	return l.threshold()
}

// isPlain reports whether an event without a block to look after only adds to a window.
func (l *Limit) isPlain() bool {
	return !l.asks() && !l.Sought && !l.Tries && len(l.Warn) == 0 && l.Rule.Count != CountDistinct && !l.Rule.Refunds && !l.Quota
}

// holds goes on with a block that is in force.
func (l *Limit) holds(s *keystate.Slot, f *facts) outcome {
	t := &l.Rule.Then
	switch {
	case f.exempt || t.None:
		return cleared
	case t.UntilReset:
		return l.follow(s, f)
	case l.Rule.reset.ends(l, f):
		return cleared
	case t.Extend && f.counts:
		if until := lasts(f.at, t.step(s.Steps)); until > s.Block.Until {
			s.Block.Until = roundUp(until, l.grain(s))
			s.Block.Count = l.Window.Count(f.window)
			if f.limit != Unlimited { // under an unlimited tier the limit that it issued by stays
				s.Block.Limit = f.limit
			}
			return moved
		}
	}
	return held
}

// grain returns the unit to which the moving end of a block is rounded up, and at which it need be published.
func (l *Limit) grain(s *keystate.Slot) event.Micros {
	if t := &l.Rule.Then; !t.UntilReset {
		return max(t.step(s.Steps)/60, minGrain)
	}
	return l.Grain
}

// follow moves a quota's end when the window's is later than what was published, up to a
// multiple of the grain: a steady flood moves it once a grain, and no block ends early. An end
// that a refund, a tier or another limit made earlier is published as it is.
func (l *Limit) follow(s *keystate.Slot, f *facts) outcome {
	until, exact := f.latest, false
	if f.limit != Unlimited {
		until, exact = f.below(l)
	}
	b := &s.Block
	switch {
	case until > b.Until && exact:
		b.Until = until
	case until > b.Until:
		b.Until = l.ahead(until, f.latest)
	case until == b.Until: // the next judgement is to see that the limit changed, if it did
		b.Limit = f.orIssued(b)
		return held
	case !f.took && b.Limit == f.limit && !((f.changed || f.ahead != nil) && (exact || l.ahead(until, f.latest) < b.Until)):
		return held // what was published is rounded up
	case until <= max(f.latest, b.Since): // it may have fallen past the latest time: see Rejudge
		return cleared
	default:
		b.Until = until
	}
	b.Count, b.Limit = l.Window.Count(f.window), f.orIssued(b)
	return moved
}

// ahead rounds up a quota's end that moves. Each token moves a bucket's, by as much as a grain,
// until its debt is used up. So where a limit is a rate its end is rounded up to more where more is
// ahead, by an eighth of it at most. An end that moves faster than time does all the same is not
// published each time: see Move.
func (l *Limit) ahead(until, latest event.Micros) event.Micros {
	const share = 8
	grain := l.Grain
	for l.Window.Kind.HasRate() && grain > 0 && grain <= (until-latest)/share/2 {
		grain *= 2
	}
	return roundUp(until, grain)
}

// issue makes a new block.
func (l *Limit) issue(s *keystate.Slot, f *facts, count event.Decimal) {
	t := &l.Rule.Then
	s.Over()
	s.Had, s.Block = true, keystate.Block{Since: f.latest, Count: count, Limit: f.limit}
	if t.UntilReset {
		s.Block.Until, _ = f.below(l)
		return
	}
	if t.Escalates {
		l.climb(s, f)
	}
	s.Block.Until = lasts(f.latest, t.step(s.Steps))
}

// settle drops a block that is over, and lets the escalation know of its end. A pass drops none: it
// goes by the partition's time, and by the key's own, which is behind that, the block may be in
// force still. A late event would be blocked once more.
func (t *Then) settle(s *keystate.Slot, out outcome, f *facts) {
	switch {
	case out == none && f.pass && s.Had:
	case out == none:
		s.Over()
	case out == cleared:
		s.Had, s.Ended = false, f.latest
	default:
		s.Lasts()
	}
	if !t.Escalates {
		s.Steps, s.Ended = 0, 0
	}
}

// lasts is the end of a penalty that begins at a moment.
func lasts(from, step event.Micros) event.Micros {
	return min(keystate.Later(from, step), event.Forever)
}

// step returns the length of the n-th verdict; the last step repeats.
func (t *Then) step(n uint64) event.Micros {
	if len(t.Steps) == 0 {
		return 0
	}
	return t.Steps[min(max(n, 1), uint64(len(t.Steps)))-1]
}

// Longest bounds a penalty's length; 0 for a quota.
func (t *Then) Longest() (longest event.Micros) {
	for _, step := range t.Steps {
		longest = max(longest, step)
	}
	return longest
}

// over tells whether the limit is reached or exceeded, and by which count: that of the window which
// the event went into. So a late event that went into an ended window triggers no verdict for the
// current one, to which it added nothing; and none of a quota, which would already be over.
func (l *Limit) over(f *facts) (count event.Decimal, over bool) {
	if l.Rule.Then.UntilReset {
		count, over = f.current(l)
		return count, over && l.passes(count, f.limit)
	}
	return f.added.Count, l.passes(f.added.Count, f.limit)
}

// passes tells whether a verdict is issued at a count: where the limit is reached, or exceeded.
func (l *Limit) passes(count, limit event.Decimal) bool {
	if l.Rule.Then.reached() {
		return count >= full(&l.Window, limit)
	}
	return count > limit
}

// passesStep tells whether a count has got to a share of a limit, without rounding.
func passesStep(count, limit, share event.Decimal) bool {
	aHi, aLo := bits.Mul64(uint64(count), uint64(event.One))
	bHi, bLo := bits.Mul64(uint64(limit), uint64(share))
	return aHi > bHi || aHi == bHi && aLo >= bLo
}

// spent returns the moment from which the extras no longer matter; NoTime when they don't.
func (l *Limit) spent(x *keystate.Extras) event.Micros {
	at := event.NoTime
	for _, s := range []*keystate.Slot{&x.Live, &x.Candidate} {
		if s.Had {
			at = max(at, s.Block.Until)
		}
		if s.Steps > 0 {
			at = max(at, l.Rule.Then.forgotten(s.Steps, s.LastEnd()))
		}
	}
	if x.WasReset {
		at = max(at, remembersReset(x, l.Window.Lateness))
	}
	for _, since := range x.Warned {
		if since != event.NoTime {
			at = max(at, keystate.Later(since, l.PerMax))
		}
	}
	return at
}

// verdictOf is a block as the world sees it. The key's dimensions are shared.
func (l *Limit) verdictOf(b *keystate.Block, key []event.Dim) verdict.Verdict {
	v := verdict.Verdict{
		Rule:   string(b.Name),
		Public: l.Rule.Public,
		Key:    key,
		State:  verdict.Block,
		Action: l.Rule.Then.Action,
		APIs:   l.Rule.covered(key),
		Count:  b.Count,
		Limit:  b.Limit,
		Since:  b.Since,
		Until:  b.Until,
		Cause:  verdict.Cause{ID: string(b.ID), Partition: b.Partition, Offset: b.Offset},
	}
	if v.Action == verdict.ActThrottle {
		v.Per = l.passesIn(b.Limit)
	}
	switch {
	case len(b.Name) == 0: // of version 1
		v.Rule, v.Mode = l.Name, l.Rule.Mode
	case b.Shadow:
		v.Mode = verdict.Shadow
	}
	return v
}

// passesIn is the time in which so much passes under the limit: the window's length, the shortest one
// of calendar units. Of a bucket it is the time in which its burst drains, which is what its verdicts
// have as their limit.
func (l *Limit) passesIn(limit event.Decimal) event.Micros {
	if !l.Window.Kind.HasRate() {
		return l.PerMin
	}
	hi, lo := bits.Mul64(uint64(l.Window.Per), uint64(max(limit, 0)))
	if hi >= uint64(l.Window.Limit) {
		return windows.MaxTime
	}
	per, _ := bits.Div64(hi, lo, uint64(l.Window.Limit))
	return event.Micros(min(per, uint64(windows.MaxTime)))
}

// roundUp returns the first multiple of grain, since the epoch, that is not before at.
func roundUp(at, grain event.Micros) event.Micros {
	if grain <= 1 {
		return at
	}
	over := at % grain
	if over < 0 {
		over += grain
	}
	if over == 0 {
		return at
	}
	return keystate.Later(at, grain-over)
}

// minGrain is the least time between two publications of one verdict that moves.
const minGrain = 100 * event.Millisecond
