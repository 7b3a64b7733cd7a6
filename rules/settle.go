package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/verdict"
)

// settle judges p.window and p.extras of a limit by the i-th hit, and notes what is to be
// published. It reports whether the extras of a plain limit are as they were.
func (p *Stepper) settle(l *Limit, f *facts, in *Input, i int, res *Result) (same bool) {
	x := &p.extras
	f.exempt = p.isExempt(l, in.Key, f.latest)
	if l.Sought {
		noteCounted(p, l, f, in.Hits[i].Amount)
		return false
	}
	changes := len(p.changes)
	out := p.decide(l, &x.Live, f, in, i, res)
	if f.above(l) {
		p.noteAbove(l, &x.Live, f)
	} else if f.near(l) {
		p.near = append(p.near, l)
	}
	if l.plain && !f.reset && out == held && len(p.changes) == changes && !x.Candidate.Had {
		return true
	}
	if l.Tries {
		try := f.against(l.Candidate)
		p.tryOut(l, &x.Candidate, &try, in, i)
	} else {
		p.dropCandidate(l, f, in, i)
	}
	if out == issued && l.Rule.Then.Reset {
		p.reset(l, f)
	}
	if len(l.Warn) == 0 {
		x.Warned = x.Warned[:0]
	} else if f.adds && !f.exempt && f.limit > 0 && !x.Live.Had {
		p.warn(l, f, in, i)
	}
	return false
}

// decide judges the live limit.
func (p *Stepper) decide(l *Limit, s *keystate.Slot, f *facts, in *Input, i int, res *Result) outcome {
	until, shown := s.Block.Until, s.Block.Display
	out := l.judge(s, f)
	if out == issued {
		p.setCause(&s.Block, in)
	}
	if out != none && out != cleared {
		shadow := p.Fuses.shadow(l)
		if (out == issued || out == moved) && !shadow && p.Fuses.blows(l.Rule, in.Key, s.Block.Until, f.latest, in.Active) {
			shadow = true
			res.Blown = append(res.Blown, l.Rule)
		}
		if display := l.displayHashes[bit(shadow)]; out != held || s.Block.Display != 0 && s.Block.Display != display {
			s.Block.Display, s.Block.Shadow, s.Block.Name = display, shadow, append(s.Block.Name[:0:0], l.Name...)
			if display == shown {
				p.noteMove(l, s, out, until)
			}
			p.publish(l, s, f, out, in.Key, i)
		}
	}
	if out == cleared {
		p.publish(l, s, f, out, in.Key, i)
		p.Fuses.forget(l, in.Key)
	}
	l.Rule.Then.settle(s, out, f)
	return out
}

// tryOut judges the candidate: its verdicts are shadow ones.
func (p *Stepper) tryOut(l *Limit, s *keystate.Slot, f *facts, in *Input, i int) {
	until := s.Block.Until
	out := l.judge(s, f)
	switch out {
	case issued:
		p.setCause(&s.Block, in)
		p.name = append(append(p.name[:0], l.Name...), candidateSuffix...)
		s.Block.Display, s.Block.Shadow, s.Block.Name = l.displayHashes[1], true, p.name
		p.publish(l, s, f, out, in.Key, i)
	case moved, cleared:
		p.noteMove(l, s, out, until)
		p.publish(l, s, f, out, in.Key, i)
	case none, held:
	}
	l.Rule.Then.settle(s, out, f)
}

// dropCandidate clears what a candidate has in force that is gone.
func (p *Stepper) dropCandidate(l *Limit, f *facts, in *Input, i int) {
	s := &p.extras.Candidate
	if s.Had && f.latest < s.Block.Until {
		p.publish(l, s, f, cleared, in.Key, i)
	}
	*s = keystate.Slot{}
}

// shadow reports whether a limit's verdicts are not enforced.
func (f *Fuses) shadow(l *Limit) bool {
	return l.Shadow || l.Rule.Mode == verdict.Shadow || f.Blown(l.Rule)
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// isExempt reports whether the key is exempt under a limit.
func (p *Stepper) isExempt(l *Limit, key []byte, at event.Micros) bool {
	switch {
	case l.Rule.exemptKeys == nil && p.Exempt == nil && len(p.keySection.Exempt) == 0:
		return false
	case l.Rule.exemptKeys != nil && l.Rule.exemptKeys.covers(p.key(key), at):
		return true
	case Exemptions(p.keySection.Exempt).Spare(l, at):
		return true
	}
	return p.Exempt != nil && p.Exempt(l, p.key(key), at)
}

// warn gives a notice for each step of the limit that the count has got to, once a window; in a
// sliding one at most once per its length. Of hopping windows it is that of all that hold it.
func (p *Stepper) warn(l *Limit, f *facts, in *Input, i int) {
	count, ok := f.current(l)
	if !ok {
		return
	}
	x := &p.extras
	from, to := l.Window.Bounds(p.window, f.latest)
	if to = keystate.Later(to, l.Window.Overlap()); l.Window.Kind.Slides() {
		from, to = from+1, keystate.Later(f.latest, l.Window.Per)
	}
	for len(x.Warned) < len(l.Warn) {
		x.Warned = append(x.Warned, event.NoTime)
	}
	x.Warned = x.Warned[:len(l.Warn)]
	for n, step := range l.Warn {
		if x.Warned[n] >= from || !passesStep(count, f.limit, step.Share) {
			continue
		}
		x.Warned[n] = f.latest
		key := p.key(in.Key)
		v := verdict.Verdict{
			Rule: l.Name, Public: l.Rule.Public, Key: key, State: verdict.Warn, Mode: l.Rule.Mode, Action: l.Rule.Then.Action, APIs: l.Rule.covered(key),
			Count: count, Limit: f.limit, Since: f.latest, Until: to, Step: step.Text, Cause: in.Cause,
		}
		if p.Fuses.shadow(l) {
			v.Mode = verdict.Shadow
		}
		p.change(&v, i)
	}
}

// retire clears what a limit had in force that is no more in the set.
func (p *Stepper) retire(sec keystate.Section, key []byte, latest event.Micros) {
	if !sec.HasExtra() {
		return
	}
	p.take(sec)
	gone := &Limit{Rule: &Rule{Then: Then{Action: verdict.ActBlock}}}
	for _, s := range []*keystate.Slot{&p.extras.Live, &p.extras.Candidate} {
		b := &s.Block
		if !s.Had || latest >= b.Until || len(b.Name) == 0 {
			continue
		}
		v := gone.verdictOf(b, p.key(key))
		moment := max(latest, v.Since)
		v.State, v.Since, v.Until = verdict.Clear, moment, moment
		p.change(&v, -1)
	}
}
