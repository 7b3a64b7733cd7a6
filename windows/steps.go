package windows

import (
	"cmp"
	"slices"

	"github.com/tallygate/tallygate/event"
)

// Step is an amount that counts until a moment.
type Step struct {
	Until  event.Micros
	Amount event.Decimal
}

// stepper is a kind whose amounts stop to count at known moments.
type stepper interface {
	steps(s *Spec, state []byte) []Step // in any order, also of what is over
}

// Steps lists the falls of the count behind now, which is not before the latest time, if nothing more happens:
// CountAt of any later moment is the sum of the steps whose Until is behind it. They are in the order of Until. A
// Bucket and a Session, whose counts do not fall by steps, have none, and neither have distinct values.
func (s *Spec) Steps(state []byte, now event.Micros) []Step {
	k, ok := s.kind().(stepper)
	if !ok || len(state) == 0 {
		return nil
	}
	steps := slices.DeleteFunc(k.steps(s, state), func(one Step) bool { return one.Until <= now || one.Amount == 0 })
	slices.SortFunc(steps, func(a, b Step) int { return cmp.Compare(a.Until, b.Until) })
	return steps
}

// steps is the current window; the one before it is over.
func (pairs[K]) steps(s *Spec, state []byte) []Step {
	var k K
	p := k.read(s, state)
	return []Step{{p.end, p.cur}}
}

func (panes) steps(s *Spec, state []byte) []Step {
	return stepsOf(paneParts(s, state), s.Resolution+s.Per)
}

func (exact) steps(s *Spec, state []byte) []Step { return stepsOf(exactParts(state), s.Per) }

// steps: a pane counts as long as a window that holds it and the moment does.
func (hopping) steps(s *Spec, state []byte) []Step { return stepsOf(hopParts(s, state), s.Per) }

func stepsOf(parts []part, keeps event.Micros) []Step {
	steps := make([]Step, len(parts))
	for i, p := range parts {
		steps[i] = Step{p.at + keeps, p.n}
	}
	return steps
}
