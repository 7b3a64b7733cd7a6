package shard

import (
	"errors"

	"github.com/tallygate/tallygate/pipeline/aggregate/state"
)

// Cut is a checkpoint that is being made.
type Cut struct {
	record *checkpoint
	dirty  *state.Cut
	space  []byte
}

// Covers is the first offset of a source that the checkpoint does not cover.
func (c *Cut) Covers(src Source) int64 { return c.record.Next[src] }

// ErrTorn says that a checkpoint was given up behind its cut. There is no other after it: which
// states had changed only its cut knows, and another one would cover what is nowhere written.
var ErrTorn = errors.New("shard: a checkpoint before this one was not finished")

// LevelsAtOnce is how many levels may be asked for at once: events wait meanwhile.
const LevelsAtOnce = 256

// ErrLevelsWait says that there is no cut yet, since too many levels wait: call PublishLevels first.
var ErrLevelsWait = errors.New("shard: too many levels wait to be published for a checkpoint to begin")

// BeginCheckpoint notes how far the shard is: what was processed up to now is in the states that
// changed, which CopyNext copies. It is fuzzy: states may hold later events too, which their
// applied offsets tell. It returns nil when nothing is new, ErrTorn while the one before is not
// Covered, and ErrLevelsWait. What is packed is forwarded: it may be of events that the checkpoint covers.
func (s *Shard) BeginCheckpoint() (*Cut, error) {
	if s.cutting {
		return nil, ErrTorn
	}
	if s.next == s.covered && s.table.Dirty() == 0 && !s.accepted && s.epochs == s.epochsNoted {
		return nil, nil
	}
	switch more, err := s.PublishLevels(LevelsAtOnce); {
	case err != nil:
		return nil, err
	case more:
		return nil, ErrLevelsWait
	}
	s.FlushPacks(nil)
	s.cutting = true
	return &Cut{record: s.snapshot(), dirty: s.table.Cut()}, nil
}

// CopyNext asks for the next changed state to be written, and returns its size; false behind the
// last. A state is copied and asked for in one call: one that is written through later stands
// behind it.
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

		Strict:     s.announced.said,
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
