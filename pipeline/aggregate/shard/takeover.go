package shard

import (
	"bytes"
	"fmt"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/verdict"
)

// Takeover takes over what owners before have written. It keeps what the changelog has beside the keys.
type Takeover struct {
	log      *Log
	rules    *inUse
	table    *table
	levels   *Levels
	verdicts *Verdicts
	judge    *Judge
	intake   *intake

	checkpoint *checkpoint // the last one
	leftovers  map[string]leftover
	parts      map[string][]byte // of the table of producers, by key

	// No key has reached more of a source; perhaps none as much, since keys are deleted, and offsets start
	// over. Who has to know looks at the keys.
	reached [Sources]int64

	checked state.Place // the states before it were looked at
}

// leftover lists the verdicts in a key's last record that were not yet published.
type leftover struct {
	offset   int64 // of that record: the seq of those without one
	verdicts []unpublished
}

// issued are the verdicts to publish once more.
func (l *leftover) issued() ([]*issued, error) {
	var list []*issued
	newest := map[string]int{}
	for _, u := range l.verdicts {
		v, err := verdict.Parse(u.body)
		if err != nil {
			return nil, fmt.Errorf("unpublished verdict in the changelog at %d: %w", l.offset, err)
		}
		if v.Seq = u.seq; u.seq < 0 {
			v.Seq = l.offset
		}
		is := &issued{unpublished: unpublished{v.Seq, u.body}, v: v, broker: event.NoTime}
		record := string(verdict.AppendRecordKey(nil, &v))
		if i, ok := newest[record]; ok {
			list[i] = is
			continue
		}
		newest[record] = len(list)
		list = append(list, is)
	}
	return list, nil
}

// loadAtOnce is the number of records that are loaded together.
const loadAtOnce = 32

// Load takes in records of the changelog, in their order; it keeps copies only. Fence records are
// the owner's own matter; it skips them. An error is about the record behind the n that it took in.
// Of a key with several records only the newest state matters: see CheckLoaded.
func (t *Takeover) Load(recs []record.Record) (n int, err error) {
	t.checked = state.Place{}
	var hashes [loadAtOnce]uint64
	for len(recs) > 0 {
		some := recs[:min(len(recs), loadAtOnce)]
		for i := range some {
			hashes[i] = state.Hash(some[i].Key)
			t.table.Expect(hashes[i])
		}
		t.table.Warm(hashes[:len(some)]) // a million keys wait for memory, and so do it together
		for i := range some {
			if err := t.load(hashes[i], &some[i]); err != nil {
				return n + i, err
			}
		}
		n, recs = n+len(some), recs[len(some):]
	}
	return n, nil
}

func (t *Takeover) load(hash uint64, rec *record.Record) error {
	key := rec.Key
	switch {
	case isOwnerRecord(key):
		return t.loadOwnerRecord(key, rec.Value)
	case rec.Value == nil:
		t.table.Delete(key)
		delete(t.leftovers, string(key))
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
		t.reached[src] = max(t.reached[src], b.applied[src].next)
	}
	t.table.Load(hash, key, raw)
	if len(pending) > 0 {
		for i := range pending {
			pending[i].body = bytes.Clone(pending[i].body)
		}
		t.leftovers[string(key)] = leftover{rec.Offset, pending}
	} else if len(t.leftovers) > 0 {
		delete(t.leftovers, string(key))
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
func (t *Takeover) CheckLoaded(most int) (more bool, err error) {
	next, more := t.table.InMemory(t.checked, most, func(ref state.Ref) bool {
		var b block
		if b, err = decodeBlock(t.table.Block(ref)); err == nil {
			err = t.rules.Set.Check(b.state)
		}
		if err != nil {
			err = &StateError{bytes.Clone(t.table.Key(ref)), err}
			return false
		}
		t.rules.note(t.table.Key(ref), b.state)
		return true
	})
	if err != nil {
		return false, err
	}
	t.checked = next
	return more, nil
}

func (t *Takeover) loadOwnerRecord(key, value []byte) error {
	switch {
	case string(key) == CheckpointKey:
		c, err := decodeCheckpoint(value)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrFinal, err) // trying again reads the same
		}
		t.checkpoint = c
	case string(key) == grantedKey:
		return t.levels.loadGranted(value)
	case string(key) == sayingKey:
		return t.levels.announced.load(value)
	case isPart(key):
		t.parts[string(key)] = bytes.Clone(value)
	}
	return nil
}

// Restored is the content of the changelog's last checkpoint, for an owner who asks Kafka what Resume must know.
type Restored struct {
	Checkpoint bool          // there is one
	Rules      int64         // the version that was counted by
	Epoch      [Sources]bool // Found.EpochEnd is needed, of:
	Of         [Sources]int32
}

// Restored returns the state loaded so far.
func (t *Takeover) Restored() Restored {
	c := t.checkpoint
	if c == nil {
		return Restored{}
	}
	r := Restored{Checkpoint: true, Rules: c.RulesAt}
	for src := range Sources {
		topic := t.log.cfg.Topics.of(src)
		if c.Epochs != nil && c.Epochs.Is[src] != NoEpoch && c.Topics[topic.Name] == topic.ID {
			r.Epoch[src], r.Of[src] = true, c.Epochs.Is[src]
		}
	}
	return r
}

// Found is the owner's finding in Kafka at a takeover.
type Found struct {
	ChangelogStart int64
	Oldest, Newest [Sources]int64    // where the sources begin and end
	EpochEnd       [Sources]EpochEnd // where the epochs of Restored end
	Committed      int64             // the group's offset of the input; -1 is none
	Rules          error             // why the rules are older than those that it was counted by
}
