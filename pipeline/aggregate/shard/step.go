package shard

import (
	"github.com/tallygate/tallygate/rules"
)

// Gathered reports whether so much is gathered that Step is due.
func (s *intake) Gathered() bool { return len(s.gathered.steps) >= gatherAtOnce }

// Step applies what is gathered. What lies below next of the source is processed then.
func (s *intake) Step(src Source, next int64, clock Clock) error {
	if err := s.stepGathered(clock); err != nil {
		return err
	}
	s.next[src] = next
	s.broker = s.Time(clock)
	return nil
}

// stepGathered makes the steps, in the order in which they were gathered.
func (s *intake) stepGathered(clock Clock) error {
	g := &s.gathered
	s.table.Warm(g.hashes)
	key, hit := 0, 0
	for i := range g.steps {
		next := &g.steps[i]
		w := rules.Work{Shape: next.shape, Key: g.keys[key:next.key], Hits: g.hits[hit:next.hit]}
		key, hit = next.key, next.hit
		if err := s.step(g.hashes[i], &w, next, clock); err != nil {
			return err
		}
	}
	g.reset()
	return nil
}

// step applies an event to one key's state, once: what is at or below the place that was applied
// last is in it already.
func (s *intake) step(hash uint64, w *rules.Work, g *gatheredStep, clock Clock) error {
	s.hot.Touch(w.Key)
	var b block
	ref, known := s.table.Find(hash, w.Key)
	if known {
		if err := b.decode(s.table.Block(ref)); err != nil {
			return err
		}
	}
	if b.applied[g.source].covers(g.place.next-1, g.place.index) {
		s.tally.Replayed++
		s.touch(w, g.permit, known)
		s.leftAgain(w, b.state, clock)
		return nil
	}
	active := s.table.Len()
	if !known {
		active++ // with this event it is one
	}
	next, res := s.stepper.Step(append(s.scratch[:0], blockHeaderSpace[:]...), b.state, rules.Input{
		Key: w.Key, Hits: w.Hits, At: g.at, ID: g.id, Cause: g.cause, Active: active, Permit: g.permit, PermitAt: g.permitAt, Lost: g.lost,
	})
	s.touch(w, g.permit, known)
	s.scratch = next
	for _, r := range res.Blown {
		if err := s.blown(r, active, clock); err != nil {
			return err
		}
	}
	if g.shape != nil {
		s.tally.stepped(w, &res)
	}
	for _, a := range s.stepper.Above() {
		s.tally.Overshoot[a.Limit.Index].note(&a)
	}
	for _, l := range s.stepper.Near() {
		s.tally.Near[l.Index]++
	}
	if g.shape != nil && (s.cfg.Trace != nil || g.trace != nil) {
		s.trace(w, g, res, clock)
	}
	if res.Repeat || res.Unknown || res.Same {
		return nil
	}
	if s.levels.on && g.permitAt == 0 {
		s.unpermitted(w.Hits)
	}
	s.noteLeft(w.Key, s.stepper.Left(), clock)
	changes := s.holdBack(w.Key, s.worthPublishing(res.Changes, b.state, w.Key, g, clock), res.Moves, clock)
	b.applied[g.source], b.spent = g.place, res.SpentAt
	raw := putBlockHeader(next, &b)
	if known {
		ref = s.table.Replace(ref, w.Key, raw)
	} else {
		ref = s.table.Add(hash, w.Key, raw)
	}
	if len(changes) > 0 {
		s.issueThen(ref, changes, g.broker, aftermath{trace: s.spans.verdicts(w, g, clock)})
	}
	return nil
}

// trace tells Config.Trace, and the event's own trace, of a step. It has a copy of the result: step's own
// would be in the heap, traced or not.
func (s *intake) trace(w *rules.Work, g *gatheredStep, res rules.Result, clock Clock) {
	if s.cfg.Trace != nil {
		s.cfg.Trace(&Stepped{Shape: w.Shape, Key: w.Key, Hits: w.Hits, Result: &res, Above: s.stepper.Above()})
	}
	if g.trace != nil {
		s.spans.step(w, g, resultOf(&res), clock)
	}
}
