package protocol

import (
	"math"
	"slices"

	"github.com/tallygate/tallygate/event"
)

// Level is an owner's record about a key: the count under its strict limits, its decay, and the permits settled with
// it.
type Level struct {
	Key      string       // the key's text
	Seq      int64        // orders the levels of a key
	Latest   event.Micros // the latest time that was counted
	Settles  []string     // ids of permits
	Exempt   event.Micros // until when the key is exempt from all of them
	Sections []Section
}

// Section is the level under one limit.
type Section struct {
	Name  string        // the Limit's
	Steps []Step        // of a Window: in the order of Until
	Level event.Decimal // of a Bucket: at Latest
	Tier  uint64        // of the key's last event; 0: none of the limit's tiers
}

// gone is the Level of a section that says nothing of a limit.
const gone event.Decimal = -1

// Gone is the section of a limit that is strict by the version of the rules that is in force, and that the owner no
// longer counts, as it counts by a later version already. Who asks under that limit, until the later version is in
// force, must not take it for unused.
func Gone(name string, inForce uint64) Section {
	return Section{Name: name, Level: gone, Tier: inForce}
}

// Step is an amount that counts until a moment.
type Step struct {
	Until  event.Micros
	Amount event.Decimal
}

// MaxSteps bounds the steps of a Section.
const MaxSteps = 64

// Coalesce makes of steps, which are in the order of their Until, at most MaxSteps. Amounts that go
// together count until the later moment: the level is never too low.
func Coalesce(steps []Step) []Step {
	if len(steps) <= MaxSteps {
		return steps
	}
	per := (len(steps) + MaxSteps - 1) / MaxSteps
	out := steps[:0]
	for len(steps) > 0 {
		n := min(per, len(steps))
		one := Step{Until: steps[n-1].Until}
		for _, s := range steps[:n] {
			one.Amount = one.Amount.Plus(s.Amount)
		}
		out, steps = append(out, one), steps[n:]
	}
	return out
}

// Merge makes one record of two of a key: the state is the later one's, and all permits of both are
// settled. Neither is changed.
func (l *Level) Merge(other *Level) *Level {
	later, earlier := l, other
	if other.Seq > l.Seq {
		later, earlier = other, l
	}
	one := *later
	one.Settles = append(append([]string(nil), earlier.Settles...), later.Settles...)
	return &one
}

// section is the level under a limit, also under another of its names: an owner calls it otherwise as soon as it
// counts by other rules, and until it has said so, requests ask by the ones before.
func (l *Level) section(of *Limit) *Section {
	if l == nil {
		return nil
	}
	for i := range l.Sections {
		if of.is(l.Sections[i].Name) && l.Sections[i].Level != gone {
			return &l.Sections[i]
		}
	}
	return nil
}

// isGone tells whether the level says that the owner no longer counts a limit, and nothing else of it.
func (l *Level) isGone(of *Limit, inForce uint64) bool {
	return l != nil && !off.gone && l.section(of) == nil && slices.ContainsFunc(l.Sections, func(s Section) bool {
		return of.is(s.Name) && s.Level == gone && s.Tier == inForce
	})
}

// at returns what of the steps still counts.
func (s *Section) at(now event.Micros) (sum float64) {
	if s == nil {
		return 0
	}
	for _, step := range s.Steps {
		if step.Until > now {
			sum += float64(step.Amount)
		}
	}
	return sum
}

func floor(x float64) float64 { return math.Floor(x) }
