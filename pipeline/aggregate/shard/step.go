package shard

import (
	"slices"

	"github.com/tallygate/tallygate/rules"
)

// stepGathered makes the steps, in the order in which they were gathered.
func (in *intake) stepGathered(clock Clock) error {
	g := &in.gathered
	in.table.Warm(g.hashes)
	key, hit := 0, 0
	for i := range g.steps {
		next := &g.steps[i]
		w := rules.Work{Shape: next.shape, Key: g.keys[key:next.key], Hits: g.hits[hit:next.hit]}
		key, hit = next.key, next.hit
		if err := in.step(g.hashes[i], &w, next, clock); err != nil {
			return err
		}
	}
	g.reset()
	return nil
}

// step applies an event to one key's state, once: what is at or below the place that was applied
// last is in it already.
func (in *intake) step(hash uint64, w *rules.Work, g *gatheredStep, clock Clock) error {
	in.hot.Touch(w.Key)
	var b block
	ref, known := in.table.Find(hash, w.Key)
	if known {
		if err := b.decode(in.table.Block(ref)); err != nil {
			return err
		}
	}
	if b.applied[g.source].covers(g.place.next-1, g.place.index) {
		in.log.tally.Replayed++
		in.touch(w, g.permit, known)
		in.leftAgain(w, b.state, clock)
		return nil
	}
	active := in.table.Len()
	if !known {
		active++ // with this event it is one
	}
	next, res := in.rules.stepper.Step(append(in.rules.scratch[:0], blockHeaderSpace[:]...), b.state, rules.Input{
		Key: w.Key, Hits: w.Hits, At: g.at, ID: g.id, Cause: g.cause, Active: active, Permit: g.permit, PermitAt: g.permitAt, Lost: g.lost,
	})
	in.touch(w, g.permit, known)
	in.rules.scratch = next
	for _, r := range res.Blown {
		if err := in.judge.blown(r, active, clock); err != nil {
			return err
		}
	}
	if g.shape != nil {
		in.log.tally.stepped(w, &res)
	}
	for _, a := range in.rules.stepper.Above() {
		in.log.tally.Overshoot[a.Limit.Index].note(&a)
	}
	for _, l := range in.rules.stepper.Near() {
		in.log.tally.Near[l.Index]++
	}
	if g.shape != nil && (in.log.cfg.Trace != nil || g.trace != nil) {
		in.trace(w, g, res, clock)
	}
	if res.Repeat || res.Unknown || res.Same {
		return nil
	}
	if in.levels.on && g.permitAt == 0 {
		in.unpermitted(w.Hits)
	}
	in.quotas.noteLeft(w.Key, in.rules.stepper.Left(), clock)
	changes := in.verdicts.holdBack(w.Key, in.judge.worthPublishing(res.Changes, b.state, w.Key, g, clock), res.Moves, clock)
	b.applied[g.source], b.spent = g.place, res.SpentAt
	raw := putBlockHeader(next, &b)
	if known {
		ref = in.table.Replace(ref, w.Key, raw)
	} else {
		ref = in.table.Add(hash, w.Key, raw)
	}
	if len(changes) > 0 {
		in.verdicts.issueThen(ref, changes, g.broker, followUps{trace: in.spans.verdicts(w, g, clock)})
	}
	return nil
}

// trace tells Config.Trace, and the event's own trace, of a step. It has a copy of the result: step's own
// would be in the heap, traced or not.
func (in *intake) trace(w *rules.Work, g *gatheredStep, res rules.Result, clock Clock) {
	if in.log.cfg.Trace != nil {
		in.log.cfg.Trace(&Stepped{Shape: w.Shape, Key: w.Key, Hits: w.Hits, Result: &res, Above: in.rules.stepper.Above(), Counts: in.rules.stepper.Counted})
	}
	if g.trace != nil {
		in.spans.step(w, g, resultOf(&res), clock)
	}
}

// touch notes what an event means for a key's level. Also what was applied before: the level may not
// have been published. A key without a state is not known: it learns nothing from what only tells.
func (in *intake) touch(w *rules.Work, permit string, known bool) {
	if !in.levels.on || in.log.cfg.NoLevels {
		return
	}
	changes := permit != ""
	for i := range w.Hits {
		changes = changes || w.Hits[i].Limit.Strict && (known || !w.Hits[i].Tells)
	}
	if changes {
		in.levels.add(w.Key, permit)
	}
}

// unpermitted counts, by rule, that an event counted under strict limits without a permit.
func (in *intake) unpermitted(hits []rules.Hit) {
	last := -1
	for i := range hits {
		l := hits[i].Limit
		if l.Strict && hits[i].Amount > 0 && l.Rule.Index != last {
			last = l.Rule.Index
			in.log.tally.Unpermitted[last]++
		}
	}
}

// leftAgain publishes the remainder of a key whose event was applied before: whether that was published is not known.
func (in *intake) leftAgain(w *rules.Work, state []byte, clock Clock) {
	if slices.ContainsFunc(w.Hits, func(h rules.Hit) bool { return h.Limit.Quota }) {
		in.quotas.noteLeft(w.Key, in.rules.stepper.LeftNow(state, w.Key), clock)
	}
}
