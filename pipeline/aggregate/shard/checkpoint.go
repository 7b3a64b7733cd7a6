package shard

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/pipeline/event"
)

// CheckpointKey is the key of checkpoint records in the changelog.
const CheckpointKey = "\x00checkpoint"

const checkpointVersion = 1

// checkpoint is what a checkpoint record says: all that a partition knows beside its keys.
// Everything below Next is in the keys' states that stand before the record in the changelog.
type checkpoint struct {
	Version   int                    `json:"version"`
	Topics    map[string]string      `json:"topics"`              // the topics' ids, by name
	Next      [Sources]int64         `json:"next"`                // the first offset not covered: of the input, of the loop
	Origins   map[int32][3]int64     `json:"origins,omitempty"`   // offset + 1, index, generation
	Producers map[string]producerRow `json:"producers,omitempty"` // when they are few
	Broker    event.Micros           `json:"broker_time_us"`
	Rules     string                 `json:"rules"` // the rule set's hash
	RulesAt   int64                  `json:"rules_version,omitempty"`
	Blown     []string               `json:"blown,omitempty"` // the rules of that version whose fuses have blown

	ProducerParts []uint64 `json:"producer_parts,omitempty"` // when they are many: the versions of the parts that hold them

	Generation uint32 `json:"generation,omitempty"`      // how often the input's offsets have started over
	Start      int64  `json:"changelog_start,omitempty"` // of the changelog: what is gone below it was accepted

	Epochs *Epochs `json:"epochs,omitempty"` // nil in records of older programs

	// Judged is of the record's place in the changelog, not of the cut. It is nil in records of older
	// programs.
	Judged *judgedRecord `json:"judged,omitempty"`
}

func (c *checkpoint) encode() ([]byte, error) { return json.Marshal(c) }

func decodeCheckpoint(value []byte) (*checkpoint, error) {
	var c checkpoint
	if err := json.Unmarshal(value, &c); err != nil {
		return nil, fmt.Errorf("checkpoint record: %w", err)
	}
	if c.Version != checkpointVersion {
		return nil, fmt.Errorf("%w: checkpoint version %d, this program reads %d", ErrNewerFormat, c.Version, checkpointVersion)
	}
	return &c, nil
}

// Cut is a checkpoint that is being made.
type Cut struct {
	record *checkpoint
	dirty  *state.Cut
	space  []byte
}

// Covers is the first offset of a source that the checkpoint does not cover.
func (c *Cut) Covers(src Source) int64 { return c.record.Next[src] }

// ErrTorn says that a checkpoint was given up behind its cut. There is no other after it: which states had changed only its
// cut knows, and another one would cover what is nowhere written.
var ErrTorn = errors.New("shard: a checkpoint before this one was not finished")

// BeginCheckpoint notes how far the shard is: what was processed up to now is in the states that changed, which
// CopyNext copies. It is fuzzy: states may hold later events too, which their applied offsets tell. It returns nil when
// nothing is new, and ErrTorn while the one before is not Covered.
func (s *Shard) BeginCheckpoint() (*Cut, error) {
	if s.cutting {
		return nil, ErrTorn
	}
	if s.next == s.covered && s.table.Dirty() == 0 && !s.accepted && s.epochs == s.epochsNoted {
		return nil, nil
	}
	s.cutting = true
	return &Cut{record: s.snapshot(), dirty: s.table.Cut()}, nil
}

// CopyNext asks for the next changed state to be written, and returns its size; false behind the last. A state is
// copied and asked for in one call: one that is written through later stands behind it.
func (s *Shard) CopyNext(c *Cut) (bytes int, more bool) {
	ref, more := c.dirty.Next()
	if !more {
		return 0, false
	}
	if c.space == nil {
		c.space = make([]byte, 0, min(spaceBytes, 256*c.dirty.Len()))
	}
	rec := s.stateRecord(&c.space, ref)
	s.out.States = append(s.out.States, rec)
	return len(rec.Key) + len(rec.Value), true
}

// EndCheckpoint asks for the checkpoint record. All that was asked for before must be acknowledged.
func (s *Shard) EndCheckpoint(c *Cut) error {
	body, err := c.record.encode()
	if err != nil {
		return err
	}
	return s.appendCheckpoint(body)
}

// Covered takes in that the checkpoint record is durable: the offsets below it can be released.
func (s *Shard) Covered(c *Cut) {
	s.cutting = false
	s.covered, s.accepted, s.epochsNoted = c.record.Next, false, *c.record.Epochs
}

// snapshot is taken at the cut.
func (s *Shard) snapshot() *checkpoint {
	epochs := s.epochs
	c := &checkpoint{
		Version: checkpointVersion,
		Topics:  map[string]string{},
		Next:    s.next,
		Origins: make(map[int32][3]int64, len(s.origins)),
		Broker:  s.broker,
		Rules:   s.rules.hash(),
		RulesAt: s.rules.Number,
		Blown:   s.BlownRules(),

		Generation: s.generation,
		Start:      s.start,
		Epochs:     &epochs,
	}
	s.producers.cut(c)
	for _, t := range s.cfg.Topics.all() {
		c.Topics[t.Name] = t.ID
	}
	for from, o := range s.origins {
		c.Origins[from] = [3]int64{o.applied.next, int64(o.applied.index), int64(o.generation)}
	}
	return c
}

// spaceBytes is how much memory is taken at a time for the copies of a checkpoint.
const spaceBytes = 64 << 10

// stateRecord copies a key's state, with its unpublished verdicts, into a changelog record. Its
// memory is taken off space, which is renewed when it does not suffice.
func (s *issuing) stateRecord(space *[]byte, ref state.Ref) Append {
	key, raw := s.table.Key(ref), s.table.Block(ref)
	pending := s.moved.of(key, s.issued.of(key))
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

// SweepKeys is how many keys one Sweep looks at.
const SweepKeys = 64

// Sweep looks at the next SweepKeys keys, and lets those leave that are idle: their state matters to no event that may
// still come, and their applied offsets to no replay. It returns how many left.
func (s *judging) Sweep(clock Clock) (evicted int, err error) {
	if s.broker == event.NoTime {
		return 0, nil
	}
	var idle [][]byte
	before := s.Time(clock) - s.rules.Set.MaxLateness
	for ref := range s.table.Sweep(SweepKeys) {
		b, err := decodeBlock(s.table.Block(ref))
		if err != nil {
			return 0, errors.Join(errBlock, err)
		}
		if b.spent < before && s.durable(b) && len(s.issued[string(s.table.Key(ref))]) == 0 {
			idle = append(idle, append([]byte(nil), s.table.Key(ref)...))
		}
	}
	for _, key := range idle {
		s.table.Delete(key)
		s.exempt.forget(key)
		s.out.States = append(s.out.States, Append{Key: key})
	}
	return len(idle), nil
}

// durable reports whether a durable checkpoint covers all that a block has seen.
func (s *issuing) durable(b block) bool {
	for src, a := range b.applied {
		if a.next > s.covered[src] {
			return false
		}
	}
	return true
}
