package shard

import (
	"github.com/tallygate/tallygate/pipeline/aggregate/state"
)

// table holds the keys' states, and their verdicts on the way out, which a state's record names.
type table struct {
	*state.Table
	issued issuedVerdicts
	moved  movedEnds
}

// lookUp finds a key's block.
func (t *table) lookUp(key []byte) (ref state.Ref, b block, known bool, err error) {
	if ref, known = t.Get(key); known {
		err = b.decode(t.Block(ref))
	}
	return ref, b, known, err
}

// stateRecord copies a key's state, with its unpublished verdicts, into a changelog record. Its
// memory is taken off space, which is renewed when it does not suffice.
func (t *table) stateRecord(space *[]byte, ref state.Ref) Append {
	key, raw := t.Key(ref), t.Block(ref)
	pending := t.moved.of(key, t.issued.of(key))
	need := len(key) + wireBytes(pending, raw)
	if cap(*space)-len(*space) < need {
		*space = make([]byte, 0, max(need, cap(*space)))
	}
	start := len(*space)
	buf := (*space)[start : start : start+need]
	buf = append(buf, key...)
	buf = appendWire(buf, pending, raw)
	*space = (*space)[:start+need]
	k := len(key)
	return Append{Key: buf[:k:k], Value: buf[k:]}
}

// forgotten reports whether a command has erased a key, and nothing came since: its block has what
// was applied, and no state.
func (t *table) forgotten(key string) bool {
	_, b, known, err := t.lookUp([]byte(key))
	return known && err == nil && len(b.state) == 0
}

// dropApplied drops every place in a topic that is no more: in the new one, offsets start
// below all of them, and every event would be taken for a replay.
func (t *table) dropApplied(src Source) {
	var keys [][]byte
	for ref := range t.All() {
		keys = append(keys, append([]byte(nil), t.Key(ref)...))
	}
	for _, key := range keys {
		ref, _ := t.Get(key)
		b, err := decodeBlock(t.Block(ref))
		if err != nil {
			continue // checked when it was read
		}
		b.applied[src] = applied{}
		t.Set(key, append(appendBlockHeader(nil, &b), b.state...))
	}
}

// reached is the offset behind all that any key has counted of a source.
func (t *table) reached(src Source) int64 {
	var most int64
	for ref := range t.All() {
		if b, err := decodeBlock(t.Block(ref)); err == nil { // checked when it was read
			most = max(most, b.applied[src].next)
		}
	}
	return most
}
