package shard

import (
	"bytes"
	"slices"

	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

// Parts is in how many parts the keys lie; PartOf says in which one a key does. Their order in a
// part is the same for every owner.
const Parts = state.Parts

// PartOf is the part of a key.
func PartOf(key []byte) int { return state.PartOf(key) }

// Keys is how many keys there are.
func (s *Shard) Keys() int { return s.table.Len() }

// Bytes is how much memory the keys take.
func (s *Shard) Bytes() int64 { return s.table.Bytes() }

// State copies a key's state; nil when there is none.
func (s *Shard) State(key []byte) ([]byte, error) {
	ref, ok := s.table.Get(key)
	if !ok {
		return nil, nil
	}
	b, err := decodeBlock(s.table.Block(ref))
	return append([]byte(nil), b.state...), err
}

// Exempted is what a command exempted: a key's text, and how.
type Exempted struct {
	Key string
	rules.Given
}

// Exempted are the exemptions by commands that hold for a key at a time: its own, and those of keys whose
// dimensions it has. Without a key they are all that hold then, in no order.
func (s *Shard) Exempted(key []event.Dim, at event.Micros) []Exempted {
	if len(key) == 0 {
		return s.rules.exempt.all(at)
	}
	return s.rules.exempt.with(key, at)
}

// Explainer is what explains a key's state: the rules that it is counted by, and the exemptions
// that hold for it.
func (s *Shard) Explainer(key []event.Dim) *rules.Stepper {
	stepper := s.rules.Set.NewStepper()
	var given []rules.Exemptions
	s.rules.exempt.about(key, func(_ string, x rules.Exemptions) bool {
		given = append(given, x)
		return true
	})
	stepper.Exempt = func(l *rules.Limit, _ []event.Dim, at event.Micros) bool {
		return slices.ContainsFunc(given, func(x rules.Exemptions) bool { return x.Spare(l, at) })
	}
	return stepper
}

// KeysBehind copies at most so many keys of a part, behind one of them; "" is before the first.
func (s *Shard) KeysBehind(part int, behind string, most int) (keys [][]byte, more bool) {
	return s.table.Behind(part, []byte(behind), most)
}

// Walk calls visit with keys of a part and their states, from a place in the part on, until it returns false, and
// returns the place to continue at; -1 is the end. visit must keep neither. Places are others once size has changed.
func (s *Shard) Walk(part, place int, visit func(key, state []byte) bool) (next, size int, err error) {
	next = s.table.Walk(part, place, func(ref state.Ref) bool {
		b, bad := decodeBlock(s.table.Block(ref))
		if err = bad; err != nil {
			return false
		}
		return visit(s.table.Key(ref), b.state)
	})
	return next, s.table.Size(part), err
}

// KeysWith appends the keys of a part that have all of these dimensions, each written name=value,
// in the order of their names, but for the key not.
func (s *Shard) KeysWith(dst []string, part int, dims [][]byte, not string) []string {
	for ref := range s.table.Part(part) {
		if key := s.table.Key(ref); hasAll(key, dims) && string(key) != not {
			dst = append(dst, string(key))
		}
	}
	return dst
}

// hasAll reports whether a key's text has all of the dimensions, each written name=value, in the
// order of their names. A uid is the last one of any key that has it: most keys are told by that.
func hasAll(key []byte, dims [][]byte) bool {
	if last := dims[len(dims)-1]; bytes.HasPrefix(last, []byte("uid=")) && !bytes.HasSuffix(key, last) {
		return false
	}
	for d := range bytes.SplitSeq(key, []byte("&")) {
		if len(dims) > 0 && bytes.Equal(d, dims[0]) {
			dims = dims[1:]
		}
	}
	return len(dims) == 0
}
