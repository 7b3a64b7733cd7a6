package shard

import (
	"bytes"
	"fmt"

	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

// loadAtOnce is how many records are loaded together.
const loadAtOnce = 32

// Load takes in records of the changelog, in their order; it keeps copies only. Fence records are
// the owner's own matter; it skips them. An error is about the record behind the n that it took in.
// Of a key with several records only the newest state matters: see CheckLoaded.
func (s *Shard) Load(recs []record.Record) (n int, err error) {
	s.restoring.checked = state.Place{}
	var hashes [loadAtOnce]uint64
	for len(recs) > 0 {
		some := recs[:min(len(recs), loadAtOnce)]
		for i := range some {
			hashes[i] = state.Hash(some[i].Key)
			s.table.Expect(hashes[i])
		}
		s.table.Warm(hashes[:len(some)]) // a million keys wait for memory, and so do it together
		for i := range some {
			if err := s.load(hashes[i], &some[i]); err != nil {
				return n + i, err
			}
		}
		n, recs = n+len(some), recs[len(some):]
	}
	return n, nil
}

func (s *Shard) load(hash uint64, rec *record.Record) error {
	r, key := s.restoring, rec.Key
	switch {
	case isOwnerRecord(key):
		return s.loadOwnerRecord(key, rec.Value)
	case rec.Value == nil:
		s.table.Delete(key)
		delete(r.leftovers, string(key))
		return nil
	}
	pending, raw, err := decodeWire(rec.Value)
	if err != nil {
		return err
	}
	b, err := decodeBlock(raw)
	if err != nil {
		return err
	}
	for src := range Sources {
		r.reached[src] = max(r.reached[src], b.applied[src].next)
	}
	s.table.Load(hash, key, raw)
	if len(pending) > 0 {
		for i := range pending {
			pending[i].body = bytes.Clone(pending[i].body)
		}
		r.leftovers[string(key)] = leftover{rec.Offset, pending}
	} else if len(r.leftovers) > 0 {
		delete(r.leftovers, string(key))
	}
	return nil
}

// StateError is the error for a key whose state cannot be read.
type StateError struct {
	Key []byte // which the text does not show
	Err error  // why
}

// Error says why.
func (e *StateError) Error() string { return fmt.Sprintf("state of a key: %v", e.Err) }

// Unwrap returns Err.
func (e *StateError) Unwrap() error { return e.Err }

// CheckLoaded looks at up to most of the states that were loaded and not looked at yet, and reports whether there
// are more. An error is a *StateError: the shard counts no event on a state that it cannot read. Resume looks at all
// that are left; an owner who calls it before can do something else in between.
func (s *Shard) CheckLoaded(most int) (more bool, err error) {
	next, more := s.table.InMemory(s.restoring.checked, most, func(ref state.Ref) bool {
		var b block
		if b, err = decodeBlock(s.table.Block(ref)); err == nil {
			err = s.rules.Set.Check(b.state)
		}
		if err != nil {
			err = &StateError{bytes.Clone(s.table.Key(ref)), err}
			return false
		}
		s.exempt.note(s.table.Key(ref), b.state)
		return true
	})
	if err != nil {
		return false, err
	}
	s.restoring.checked = next
	return more, nil
}

func (s *Shard) loadOwnerRecord(key, value []byte) error {
	switch {
	case string(key) == CheckpointKey:
		c, err := decodeCheckpoint(value)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrFinal, err) // trying again reads the same
		}
		s.restoring.checkpoint = c
	case string(key) == grantedKey:
		return s.loadGranted(value)
	case string(key) == sayingKey:
		return s.announced.load(value)
	case isPart(key):
		s.restoring.parts[string(key)] = bytes.Clone(value)
	}
	return nil
}

// Restored is what the changelog's last checkpoint says, for an owner who asks Kafka what Resume
// must know.
type Restored struct {
	Checkpoint bool          // there is one
	Rules      int64         // the version that was counted by
	Epoch      [Sources]bool // Found.EpochEnd is needed, of:
	Of         [Sources]int32
}

// Restored is what was loaded so far.
func (s *Shard) Restored() Restored {
	c := s.restoring.checkpoint
	if c == nil {
		return Restored{}
	}
	r := Restored{Checkpoint: true, Rules: c.RulesAt}
	for src := range Sources {
		t := s.cfg.Topics.of(src)
		if c.Epochs != nil && c.Epochs.Is[src] != NoEpoch && c.Topics[t.Name] == t.ID {
			r.Epoch[src], r.Of[src] = true, c.Epochs.Is[src]
		}
	}
	return r
}

// Found is what the owner found in Kafka at a takeover.
type Found struct {
	ChangelogStart int64
	Oldest, Newest [Sources]int64    // where the sources begin and end
	EpochEnd       [Sources]EpochEnd // where the epochs of Restored end
	Committed      int64             // the group's offset of the input; -1 is none
	Rules          error             // why the rules are older than those that it was counted by
}
