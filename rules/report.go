package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/verdict"
)

// report collects what a step publishes.
type report struct {
	dims    []event.Dim // of the event's key, once they are needed
	cause   []byte      // the id of the event
	changes []verdict.Verdict
	order   []int  // of each change: its hit
	moves   []Move // of the changes
	above   []Above
	near    []*Limit
	left    []Left

	// Counted are the counts of sought limits after the event of the last Step: see Draft. They are valid until the next.
	Counted []Counted
}

// begin forgets the step before.
func (p *report) begin() {
	p.changes, p.moves, p.order, p.above, p.left, p.dims = p.changes[:0], p.moves[:0], p.order[:0], p.above[:0], p.left[:0], nil
	p.near, p.Counted = p.near[:0], p.Counted[:0]
}

// change notes a change by the i-th hit; -1 for none.
func (p *report) change(v *verdict.Verdict, i int) {
	p.changes = append(p.changes, *v)
	p.order = append(p.order, i)
}

// sortChanges puts the changes into the order of their hits: that of sections depends on
// which limit counted the key first.
func (p *report) sortChanges() {
	for i := 1; i < len(p.order); i++ {
		for j := i; j > 0 && p.order[j] < p.order[j-1]; j-- {
			p.order[j], p.order[j-1] = p.order[j-1], p.order[j]
			p.changes[j], p.changes[j-1] = p.changes[j-1], p.changes[j]
		}
	}
}

// key returns the dimensions of the key, which are parsed once a step.
func (p *report) key(key []byte) []event.Dim {
	if p.dims == nil {
		p.dims, _ = event.ParseKey(key) // a key that the Matcher made is well-formed
	}
	return p.dims
}

// publish notes what became of a block as a change.
func (p *report) publish(l *Limit, s *keystate.Slot, f *facts, out outcome, key []byte, i int) {
	v := l.verdictOf(&s.Block, p.key(key))
	if out == cleared {
		moment := max(f.latest, v.Since)
		v.State, v.Since, v.Until, v.Count = verdict.Clear, moment, moment, l.Window.Count(f.window)
		if f.limit != Unlimited {
			v.Limit = f.limit
		}
	}
	p.change(&v, i)
}

// noteMove notes of a block whose end was another that this is all that has changed.
func (p *report) noteMove(l *Limit, s *keystate.Slot, out outcome, until event.Micros) {
	if out == moved && s.Block.Until > until {
		p.moves = append(p.moves, Move{Rule: string(s.Block.Name), From: until, Grain: l.grain(s)})
	}
}

func (p *report) setCause(b *keystate.Block, in *Input) {
	p.cause = append(p.cause[:0], in.Cause.ID...)
	b.ID, b.Partition, b.Offset = p.cause, in.Cause.Partition, in.Cause.Offset
}

// clear publishes the end of a block that is in force.
func (p *report) clear(l *Limit, s *keystate.Slot, window, key []byte, moment event.Micros, order int) {
	f := facts{window: window, latest: moment, limit: Unlimited}
	p.publish(l, s, &f, cleared, key, order)
}
