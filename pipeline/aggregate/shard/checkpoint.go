package shard

import (
	"errors"

	"github.com/tallygate/tallygate/pipeline/aggregate/state"
)

// ProducerPart asks for part i of the table of producers to be written, if it had changed at the
// last cut. It is called for each part before End.
func (c *Cut) ProducerPart(i int, clock Clock) {
	part := &c.shard.intake.producers.parts[i]
	if !part.due {
		return
	}
	value := part.copied
	if value == nil {
		value = part.append(nil, c.shard.log.Time(clock)-forgetProducers)
	}
	part.due, part.copied = false, nil
	c.shard.log.out.States = append(c.shard.log.out.States, Append{Key: []byte(partKey(i, part.version)), Value: value})
}

// Cut is a checkpoint that is being made.
type Cut struct {
	shard  *Shard
	record *checkpoint
	dirty  *state.Cut
	left   int    // changes to look at, at most; as of the last call of CopyNext
	space  []byte // for copies
	body   []byte // the record, encoded
}

const (
	roomBytes  = 128 << 10 // the most memory that MakeRoom takes at a time
	stateBytes = 256       // of one state, estimated
	largeState = 4 << 10   // most states take less
)

// MakeRoom takes memory for the next copies. The shard may be used meanwhile: memory may cost a goroutine tens of
// milliseconds, if the collector has it help, or wait, and events should not wait with it.
func (c *Cut) MakeRoom() {
	want := min(roomBytes, largeState+c.left*stateBytes)
	if cap(c.space)-len(c.space) < min(want, roomBytes/4) {
		c.space = make([]byte, 0, want)
	}
}

// HasRoom reports whether the next copy most likely takes no memory but what MakeRoom has taken.
func (c *Cut) HasRoom() bool { return cap(c.space)-len(c.space) >= largeState }

// Encode makes the checkpoint's record, before End. The shard may be used meanwhile.
func (c *Cut) Encode() (err error) {
	c.body, err = c.record.encode()
	return err
}

// Covers is the first offset of a source that the checkpoint does not cover.
func (c *Cut) Covers(src Source) int64 { return c.record.Next[src] }

// ErrTorn says that a checkpoint was given up behind its cut. There is no other after it: which
// states had changed only its cut knows, and another one would cover what is nowhere written.
var ErrTorn = errors.New("shard: a checkpoint before this one was not finished")

// LevelsAtOnce bounds the levels that may be asked for at once: events wait meanwhile.
const LevelsAtOnce = 256

// ErrLevelsWait says that there is no cut yet, since too many levels wait: call Levels.Publish first.
var ErrLevelsWait = errors.New("shard: too many levels wait to be published for a checkpoint to begin")

// BeginCheckpoint notes how far the shard is: what was processed up to now is in the states that
// changed, which CopyNext copies. It is fuzzy: states may hold later events too, which their
// applied offsets tell. It returns nil when nothing is new, ErrTorn while the one before is not
// Covered, and ErrLevelsWait. What is packed is forwarded: it may be of events that the checkpoint covers.
func (s *Shard) BeginCheckpoint() (*Cut, error) {
	if s.cutting {
		return nil, ErrTorn
	}
	if s.log.next == s.log.covered && s.table.Dirty() == 0 && !s.log.accepted && s.log.epochs == s.log.epochsNoted {
		return nil, nil
	}
	switch more, err := s.levels.Publish(LevelsAtOnce); {
	case err != nil:
		return nil, err
	case more:
		return nil, ErrLevelsWait
	}
	s.packs.Flush(nil)
	s.cutting = true
	dirty := s.table.Cut()
	return &Cut{shard: s, record: s.snapshot(), dirty: dirty, left: dirty.Len()}, nil
}

// CopyNext asks for the next changed state to be written, and returns its size: 0 where the next change was copied
// otherwise. It returns false behind the last. A state is copied and asked for in one call: one that is written
// through later stands behind it.
func (c *Cut) CopyNext() (bytes int, more bool) {
	ref, more := c.dirty.Next()
	c.left = c.dirty.Len()
	if ref == 0 {
		return 0, more
	}
	rec := c.shard.table.stateRecord(&c.space, ref)
	c.shard.log.out.States = append(c.shard.log.out.States, rec)
	return len(rec.Key) + len(rec.Value), true
}

// End asks for the checkpoint record, which Encode should have made before. All that was asked for
// before must be acknowledged.
func (c *Cut) End() error {
	if c.body == nil {
		if err := c.Encode(); err != nil {
			return err
		}
	}
	return c.shard.judge.appendCheckpoint(c.body)
}

// Covered takes in that the checkpoint record is durable: the offsets below it can be released.
func (c *Cut) Covered() {
	c.shard.cutting = false
	c.shard.log.covered, c.shard.log.accepted, c.shard.log.epochsNoted = c.record.Next, false, *c.record.Epochs
}

// snapshot is taken at the cut.
func (s *Shard) snapshot() *checkpoint {
	epochs := s.log.epochs
	c := &checkpoint{
		Version: checkpointVersion,
		Topics:  map[string]string{},
		Next:    s.log.next,
		Origins: make(map[int32][3]int64, len(s.intake.origins)),
		Broker:  s.log.broker,
		Rules:   s.rules.hash(),
		RulesAt: s.rules.Number,
		Blown:   s.judge.BlownRules(),

		Strict:       s.levels.announced.said.name,
		StrictNumber: s.levels.announced.said.number,
		StrictLimits: s.levels.announced.said.limits,

		Generation: s.intake.generation,
		Start:      s.log.start,
		Epochs:     &epochs,
	}
	s.intake.producers.cut(c)
	for _, t := range s.log.cfg.Topics.all() {
		c.Topics[t.Name] = t.ID
	}
	for from, o := range s.intake.origins {
		c.Origins[from] = [3]int64{o.applied.next, int64(o.applied.index), int64(o.generation)}
	}
	return c
}
