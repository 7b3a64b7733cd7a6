package rules

import (
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// settle judges p.window and p.extras of a limit by the i-th hit, and notes what is to be published.
// It reports whether the extras of a plain limit are as they were.
func (p *Stepper) settle(l *Limit, f *facts, in *Input, i int, res *Result) (same bool) {
	x := &p.extras
	f.spared = p.spared(l, in.Key, f.latest)
	changes := len(p.changes)
	out := p.decide(l, &x.live, f, in, i, res)
	if l.plain && out == held && len(p.changes) == changes && !x.try.had {
		return true
	}
	if l.Candidate > 0 {
		try := *f
		try.limit = l.Candidate
		p.tryOut(l, &x.try, &try, in, i)
	} else {
		p.dropCandidate(l, f, in, i)
	}
	if out == fell && l.Rule.Then.Reset {
		p.reset(l, f)
	}
	if len(l.Warn) == 0 {
		x.warned = x.warned[:0]
	} else if f.adds && !f.added.Ended && !f.spared && f.limit > 0 && !x.live.had {
		p.warn(l, f, in, i)
	}
	return false
}

// decide judges the live limit.
func (p *Stepper) decide(l *Limit, s *slot, f *facts, in *Input, i int, res *Result) outcome {
	until, looked := s.block.until, s.block.face
	out := l.judge(s, f)
	if out == fell {
		p.setCause(&s.block, in)
	}
	if out != none && out != cleared {
		shadow := p.shadow(l)
		if (out == fell || out == moved) && !shadow && p.Fuses.blows(l.Rule, in.Key, s.block.until, f.latest, in.Active) {
			shadow = true
			res.Blown = append(res.Blown, l.Rule)
		}
		if face := l.faces[bit(shadow)]; out != held || s.block.face != 0 && s.block.face != face {
			s.block.face, s.block.shadow, s.block.name = face, shadow, append(s.block.name[:0:0], l.Name...)
			if face == looked {
				p.noteMove(l, s, out, until)
			}
			p.publish(l, s, f, out, in.Key, i)
		}
	}
	if out == cleared {
		p.publish(l, s, f, out, in.Key, i)
		p.Fuses.forget(l.Rule, in.Key)
	}
	s.settle(out, &l.Rule.Then, f)
	return out
}

// tryOut judges the candidate: its verdicts are shadow ones.
func (p *Stepper) tryOut(l *Limit, s *slot, f *facts, in *Input, i int) {
	until := s.block.until
	out := l.judge(s, f)
	switch out {
	case fell:
		p.setCause(&s.block, in)
		p.name = append(append(p.name[:0], l.Name...), candidateSuffix...)
		s.block.face, s.block.shadow, s.block.name = l.faces[1], true, p.name
		p.publish(l, s, f, out, in.Key, i)
	case moved, cleared:
		p.noteMove(l, s, out, until)
		p.publish(l, s, f, out, in.Key, i)
	case none, held:
	}
	s.settle(out, &l.Rule.Then, f)
}

// noteMove notes of a block whose end was another that this is all that has changed.
func (p *Stepper) noteMove(l *Limit, s *slot, out outcome, until event.Micros) {
	if out == moved && s.block.until > until {
		p.moves = append(p.moves, Move{Rule: string(s.block.name), From: until, Grain: l.grain(s)})
	}
}

// dropCandidate clears what a candidate has in force that is gone.
func (p *Stepper) dropCandidate(l *Limit, f *facts, in *Input, i int) {
	s := &p.extras.try
	if s.had && f.latest < s.block.until {
		p.publish(l, s, f, cleared, in.Key, i)
	}
	*s = slot{}
}

func (p *Stepper) setCause(b *block, in *Input) {
	p.cause = append(p.cause[:0], in.Cause.ID...)
	b.id, b.partition, b.offset = p.cause, in.Cause.Partition, in.Cause.Offset
}

// shadow reports whether a limit's verdicts are not enforced.
func (p *Stepper) shadow(l *Limit) bool {
	return l.Shadow || l.Rule.Mode == verdict.Shadow || p.Fuses.Blown(l.Rule)
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// publish notes what became of a block as a change.
func (p *Stepper) publish(l *Limit, s *slot, f *facts, out outcome, key []byte, i int) {
	v := s.block.verdict(l, p.key(key))
	if out == cleared {
		moment := max(f.latest, v.Since)
		v.State, v.Since, v.Until, v.Count = verdict.Clear, moment, moment, l.Window.Count(f.window)
		if f.limit > 0 {
			v.Limit = f.limit
		}
	}
	p.changes = append(p.changes, v)
	p.order = append(p.order, i)
}

// key returns the dimensions of the key, which are parsed once a step.
func (p *Stepper) key(key []byte) []event.Dim {
	if p.dims == nil {
		p.dims, _ = event.ParseKey(key) // a key that the Matcher made is well-formed
	}
	return p.dims
}

// spared reports whether the key is exempt under a limit.
func (p *Stepper) spared(l *Limit, key []byte, at event.Micros) bool {
	switch {
	case l.Rule.spared == nil && p.Exempt == nil && len(p.own.exempt) == 0:
		return false
	case l.Rule.spared != nil && l.Rule.spared.spares(p.key(key), at):
		return true
	case Exemptions(p.own.exempt).Spare(l, at):
		return true
	}
	return p.Exempt != nil && p.Exempt(l, p.key(key), at)
}

// reset empties the window that was judged, and forgets what it counted.
func (p *Stepper) reset(l *Limit, f *facts) {
	ended := f.added.Ended
	from, _ := l.Window.Bounds(p.window, f.latest)
	p.window = l.Window.Empty(p.window, ended)
	kept := p.extras.remembered[:0]
	for _, e := range p.extras.remembered {
		if !l.Window.Kind.Slides() && (e.at < from) != ended {
			kept = append(kept, e)
		}
	}
	p.extras.remembered = kept
}

// warn gives a notice for each step of the limit that the count has got to, once a window; in a
// sliding one at most once per its length.
func (p *Stepper) warn(l *Limit, f *facts, in *Input, i int) {
	x := &p.extras
	from, to := l.Window.Bounds(p.window, f.latest)
	if l.Window.Kind.Slides() {
		from, to = from+1, later(f.latest, l.Window.Per)
	}
	for len(x.warned) < len(l.Warn) {
		x.warned = append(x.warned, event.NoTime)
	}
	x.warned = x.warned[:len(l.Warn)]
	for n, step := range l.Warn {
		if x.warned[n] >= from || !passesStep(f.added.Count, f.limit, step.Share) {
			continue
		}
		x.warned[n] = f.latest
		v := verdict.Verdict{
			Rule: l.Name, Public: l.Rule.Public, Key: p.key(in.Key), State: verdict.Warn, Mode: l.Rule.Mode, Action: l.Rule.Then.Action, APIs: l.Rule.APIs,
			Count: f.added.Count, Limit: f.limit, Since: f.latest, Until: to, Step: step.Text, Cause: in.Cause,
		}
		if p.shadow(l) {
			v.Mode = verdict.Shadow
		}
		p.changes = append(p.changes, v)
		p.order = append(p.order, i)
	}
}

// takeBack takes a refund out of p.window. One that takes nothing changes nothing, not even the
// latest time, and it returns false: no event of that name is remembered, it has left its window,
// or nothing is left of it to take.
func (p *Stepper) takeBack(l *Limit, hit *Hit, at event.Micros) bool {
	window, e, back := p.refundOf(l, hit, at)
	if back == 0 {
		return false
	}
	e.taken += back
	p.window = l.Window.Take(window, e.at, back)
	return true
}

// refundOf finds the event that a refund names and what it takes back of it, and moves p.window on
// to the refund's time. Nothing else changes.
func (p *Stepper) refundOf(l *Limit, hit *Hit, at event.Micros) (window []byte, e *remembered, back event.Decimal) {
	window, _ = l.Window.Add(p.window, at, 0)
	if e = p.extras.remembered.find(l, window, hit.Value); e != nil {
		back = e.back(hit.Cost, l.Rule.Count == CountEvents)
	}
	return window, e, back
}

// refunds reports whether any limit remembers the event that a refund names, and whether the refund
// takes anything back of it under any limit, as of its time.
func (p *Stepper) refunds(old keyState, hits []Hit, at event.Micros) (known, takes bool) {
	for rest := old.sections; len(rest) > 0; {
		sec, more, ok := cutSection(rest)
		if !ok {
			break
		}
		rest = more
		sec.version = old.version
		_, sec = p.limitOfSection(sec)
		i := hitOf(hits, sec.hash(), 0)
		if i < 0 || !sec.hasExtra() {
			continue
		}
		p.window = append(p.window[:0], p.take(sec)...)
		window, e, back := p.refundOf(hits[i].Limit, &hits[i], at)
		p.window = window
		known, takes = known || e != nil, takes || back > 0
	}
	return known, takes
}

// retire clears what a limit had in force that is no more in the set.
func (p *Stepper) retire(sec rawSection, key []byte, latest event.Micros) {
	if !sec.hasExtra() {
		return
	}
	p.take(sec)
	for _, s := range []*slot{&p.extras.live, &p.extras.try} {
		b := &s.block
		if !s.had || latest >= b.until || len(b.name) == 0 {
			continue
		}
		v := b.verdict(&Limit{Rule: &Rule{Then: Then{Action: verdict.ActBlock}}}, p.key(key))
		moment := max(latest, v.Since)
		v.State, v.Since, v.Until = verdict.Clear, moment, moment
		p.changes = append(p.changes, v)
		p.order = append(p.order, -1)
	}
}
