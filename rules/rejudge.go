package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// JudgedByNone stands for a limit that nothing was judged by for a while: a set without it came in
// between. Keys that had no event then have its counts still, and nobody knows which of them a
// penalty was issued for.
var JudgedByNone = JudgedBy{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Judged says by what the counts of limits were judged last. Those of limits that are not in it
// were never judged.
type Judged map[SectionHash]JudgedBy

// Judged says by what the set judges each of its limits' counts.
func (s *Set) Judged() Judged {
	out := make(Judged, len(s.Limits))
	for _, l := range s.Limits {
		out[l.Hash] = l.judged
	}
	return out
}

// Since says by what those counts were judged that the set's limits go on from, under the names
// that they have in this set: a limit whose sliding window keeps something else now goes on under
// another name. Where counts may be of several names that were judged differently, it is the zero
// JudgedBy; of limits that was knows nothing of, nothing.
func (s *Set) Since(was Judged) Judged {
	out := make(Judged, len(s.Limits))
	for _, l := range s.Limits {
		by, known := was[l.Hash]
		for i := range l.formers {
			switch former, also := was[l.formers[i].hash]; {
			case also && known && former != by:
				by = JudgedBy{}
			case also:
				by, known = former, true
			}
		}
		if known {
			out[l.Hash] = by
		}
	}
	return out
}

// After tells the Stepper which set its own replaces: Rejudge then knows what has changed.
func (p *Stepper) After(old *Set) { p.AfterJudged(old.Judged(), false) }

// AfterJudged is After for states of which it is known by what their counts were judged last. When
// doubted, that may have been the Stepper's own set: then Rejudge ends what it would not have
// issued, and issues quotas, but no penalty; one that was served would be issued again.
func (p *Stepper) AfterJudged(was Judged, doubted bool) {
	p.changed, p.doubted = make([]bool, len(p.set.Limits)), make([]bool, len(p.set.Limits))
	since := p.set.Since(was)
	for _, l := range p.set.Limits {
		by, known := since[l.Hash]
		p.changed[l.Index] = !known || by != l.judged
		p.doubted[l.Index] = doubted || !known || by == JudgedByNone
	}
}

// Rejudge judges what a key has counted by changed rules, at a time that is not before its latest
// event. It issues verdicts and clears them as the new limits have it: a quota that is not reached
// any more, a penalty whose count would not have been over, what a rule had in force that is gone,
// and of keys that are exempt now. What looks different (mode, action, APIs, public name) is
// published again. A key whose tier is not known any more waits for its next event.
//
// It is called once for each key and change. The state is as for Step. Without changes the caller
// need not keep the one returned.
func (p *Stepper) Rejudge(dst, state, key []byte, at event.Micros) ([]byte, Result) {
	p.begin()
	old := p.read(state)
	if old.Latest == event.NoTime {
		return append(dst, state...), Result{SpentAt: event.NoTime}
	}
	at = max(at, old.Latest)
	res := Result{SpentAt: max(old.Latest, p.ids.Spent(&old.IDs, old.Latest))}
	dst = keystate.AppendHeader(dst, old.Latest)
	dst = p.ids.AppendTo(dst, old.IDs, old.Latest, old.Latest, 0, false)
	dst = p.keySection.AppendSection(dst)
	res.SpentAt = max(res.SpentAt, p.keySection.Spent())
	in := Input{Key: key}
	dst = p.each(dst, &old, key, at, &res, func(dst []byte, sec keystate.Section, l *Limit) []byte {
		p.window = append(p.window[:0], p.take(sec)...)
		changed := p.changed != nil && p.changed[l.Index]
		p.rejudge(l, &in, at, changed, changed && p.doubted[l.Index], &res)
		return p.rejudged(dst, l, &res)
	})
	dst = p.tryAnew(dst, &old, &in, at, &res)
	p.sortChanges()
	res.Changes = p.changes
	return dst, res
}

// tryAnew judges candidates with counters of their own that the key has none of yet: they begin
// with what the live limit has counted, and that may be over. One that is not over begins with the
// key's next event, with the same counts.
func (p *Stepper) tryAnew(dst []byte, old *keystate.Key, in *Input, at event.Micros, res *Result) []byte {
	for _, l := range p.set.Limits {
		if l.beside == nil || len(p.find(old, l).Raw) > 0 {
			continue
		}
		sec := p.begun(l, old)
		if len(sec.Raw) == 0 {
			continue
		}
		p.window = append(p.window[:0], p.take(sec)...)
		if p.rejudge(l, in, at, true, false, res); p.extras.Live.Had {
			dst = p.rejudged(dst, l, res)
		}
	}
	return dst
}

// rejudge judges p.window and p.extras. A limit that has changed issues what it would have issued,
// unless it is doubted that it has.
func (p *Stepper) rejudge(l *Limit, in *Input, at event.Micros, changed, doubted bool, res *Result) {
	x := &p.extras
	issues := changed && (!doubted || l.Rule.Then.UntilReset)
	f := facts{
		window: p.window, latest: at, at: at, adds: issues && !(x.Live.Had && at < x.Live.Block.Until),
		exempt: p.isExempt(l, in.Key, at), changed: changed, pass: true,
	}
	if known := p.limitAt(l, &f, in.Key); !known {
		return
	}
	f.added.Count = l.Window.CountAt(p.window, at)
	if l.Quota && changed {
		defer func() { // behind a reset
			f.window = p.window
			p.leftAnew(l, &f, p.Fuses.shadow(l))
		}()
	}
	if changed && wouldNotIssue(l, &x.Live, &f) {
		p.publish(l, &x.Live, &f, cleared, in.Key, l.Index)
		p.Fuses.forget(l, in.Key)
		l.withdraw(&x.Live, &f)
	} else if p.decide(l, &x.Live, &f, in, l.Index, res) == issued && l.Rule.Then.Reset {
		defer p.reset(l, &f) // the candidate is judged by the same counts
	}
	if !l.Tries {
		p.dropCandidate(l, &f, in, l.Index)
		return
	}
	try := f.against(l.Candidate)
	try.adds = issues && !(x.Candidate.Had && at < x.Candidate.Block.Until)
	if changed && wouldNotIssue(l, &x.Candidate, &try) {
		p.publish(l, &x.Candidate, &try, cleared, in.Key, l.Index)
		l.withdraw(&x.Candidate, &try)
		return
	}
	p.tryOut(l, &x.Candidate, &try, in, l.Index)
}

// wouldNotIssue reports whether a penalty is in force that the limit as it is now would not have
// issued, neither by what it was published with nor by what there is now.
func wouldNotIssue(l *Limit, s *keystate.Slot, f *facts) bool {
	return s.Had && f.latest < s.Block.Until && !l.Rule.Then.UntilReset &&
		(f.limit == Unlimited || !l.passes(max(s.Block.Count, f.added.Count), f.limit))
}
