package aggregate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/pipeline/event"
)

const (
	checkpointKey     = "\x00checkpoint"
	checkpointVersion = 1

	// sliceTime is how long a checkpoint keeps events waiting at a time, sliceBytes how much
	// it queues before it waits for the changelog.
	sliceTime  = 500 * time.Microsecond
	sliceBytes = 128 << 10
)

// checkpoint is what a checkpoint record says: all that a partition knows beside its keys.
// Everything below Next is in the keys' states that stand before the record in the changelog.
type checkpoint struct {
	Version   int                    `json:"version"`
	Topics    map[string]string      `json:"topics"`              // the topics' ids, by name
	Next      [lanes]int64           `json:"next"`                // the first offset not covered: of the input, of the loop
	Origins   map[int32][3]int64     `json:"origins,omitempty"`   // offset + 1, index, generation
	Producers map[string]producerRow `json:"producers,omitempty"` // when they are few
	Broker    event.Micros           `json:"broker_time_us"`
	Rules     string                 `json:"rules"` // the rule set's hash
	RulesAt   int64                  `json:"rules_version,omitempty"`
	Blown     []string               `json:"blown,omitempty"` // the rules of that version whose fuses have blown

	ProducerParts []uint64 `json:"producer_parts,omitempty"` // when they are many: the versions of the parts that hold them

	Generation uint32 `json:"generation,omitempty"`      // how often the input's offsets have started over
	Start      int64  `json:"changelog_start,omitempty"` // of the changelog: what is gone below it was accepted

	Epochs *laneEpochs `json:"epochs,omitempty"` // nil in records of older programs

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
		return nil, fmt.Errorf("%w: checkpoint version %d, this program reads %d", errNewerFormat, c.Version, checkpointVersion)
	}
	return &c, nil
}

// snapshot is taken at the cut, under the lock.
func (p *partition) snapshot() *checkpoint {
	c := &checkpoint{
		Version: checkpointVersion,
		Topics:  map[string]string{},
		Next:    p.next,
		Origins: make(map[int32][3]int64, len(p.origins)),
		Broker:  p.broker,
		Rules:   p.rules.hash(),
		RulesAt: p.rules.number,
		Blown:   p.blownRules(),

		Generation: p.generation,
		Start:      p.start,
		Epochs:     new(p.epochs),
	}
	p.producers.cut(c)
	for _, t := range ownTopics(p.agg.names) {
		c.Topics[t] = p.topicID(t)
	}
	for from, o := range p.origins {
		c.Origins[from] = [3]int64{o.mark.next, int64(o.mark.index), int64(o.generation)}
	}
	return c
}

func (c *checkpoint) restore(p *partition) error {
	p.broker = event.NoTime
	if c.Version > 0 {
		p.broker = min(c.Broker, now())
	}
	for from, o := range c.Origins {
		p.origins[from] = seen{mark{o[0], int(o[1])}, uint32(o[2])}
	}
	p.generation = c.Generation
	if c.Epochs != nil {
		p.epochs = *c.Epochs
	}
	p.epochsNoted = p.epochs
	return nil
}

// checkpoints makes one every so often, until the partition is closed or dies.
func (p *partition) checkpoints() error {
	tick := time.NewTicker(p.agg.cfg.CheckpointEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-p.stop:
			return nil
		case <-p.ctx.Done():
			return nil
		}
		if err := p.checkpoint(p.ctx); err != nil {
			return p.ended(fmt.Errorf("checkpoint: %w", err))
		}
		if err := p.sweep(p.ctx); err != nil {
			return p.ended(fmt.Errorf("sweep: %w", err))
		}
	}
}

// closeWithin bounds the last checkpoint: whoever waits for a partition that is let go, or for
// a process that was told to stop, does not wait for a Kafka that is away. The events are
// taken up again by the next owner.
const closeWithin = 5 * time.Second

func (p *partition) lastCheckpoint() {
	ctx, cancel := context.WithTimeout(p.ctx, closeWithin)
	defer cancel()
	_, err := p.publishDue(ctx, true)
	if err == nil {
		err = p.checkpoint(ctx)
	}
	if err == nil { // a checkpoint with nothing new leaves the tombstones of a sweep in the queue
		err = p.changelog.Flush(ctx)
	}
	if err != nil && p.ctx.Err() == nil {
		p.log.Warn("the last checkpoint was not made, its events will be taken up again", "error", err)
	}
}

// errTorn is why there is no checkpoint behind one that was not finished.
var errTorn = errors.New("a checkpoint before it was not finished")

// checkpoint makes durable what was processed up to now, then lets its offsets go. It is
// fuzzy: states may hold later events too, which their marks tell.
//
// One that fails behind its cut is the partition's last: which states changed is the cut's alone to know, so the next one
// would cover what it has not written.
func (p *partition) checkpoint(ctx context.Context) error {
	select {
	case p.checkpointing <- struct{}{}:
		defer func() { <-p.checkpointing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.torn {
		return errTorn
	}
	err := p.makeCheckpoint(ctx)
	p.torn = err != nil
	return err
}

func (p *partition) makeCheckpoint(ctx context.Context) error {
	began := time.Now()
	p.hold()
	for _, key := range p.pending.published() {
		p.table.Touch(key)
	}
	if p.next == p.covered && p.table.Dirty() == 0 && !p.accepted && p.epochs == p.epochsNoted {
		p.letGo()
		p.agg.metrics.durable(p)
		return nil
	}
	record := p.snapshot()
	cut := p.table.Cut()
	loops := maps.Clone(p.loops)
	side := p.side.cut()
	p.letGo()

	if err := p.copyCut(ctx, cut); err != nil {
		return err
	}
	if err := p.writeProducers(ctx); err != nil {
		return err
	}
	if err := p.changelog.Flush(ctx); err != nil {
		return err
	}
	if err := p.verdicts.Flush(ctx); err != nil { // queued by the acks that the line before waited for
		return err
	}
	for _, w := range loops {
		if err := w.Flush(ctx); err != nil {
			return err
		}
	}
	if err := p.side.wait(ctx, side); err != nil {
		return err
	}
	if err := p.writeCheckpoint(ctx, record); err != nil {
		return err
	}
	p.hold()
	p.covered, p.accepted, p.epochsNoted = record.Next, false, *record.Epochs
	p.letGo()
	p.session.MarkOffset(p.agg.names.Events, p.id, record.Next[inputLane], "")
	p.session.MarkOffset(p.agg.names.Loop, p.id, record.Next[loopLane], "")
	p.agg.metrics.checkpointed(p, time.Since(began))
	return nil
}

func (p *partition) writeCheckpoint(ctx context.Context, c *checkpoint) error {
	body, err := c.encode()
	if err != nil {
		return err
	}
	p.hold()
	err = p.appendCheckpoint(body)
	p.letGo()
	if err != nil {
		return err
	}
	return p.changelog.Flush(ctx)
}

// copyCut queues the changed states, in slices between events. They are copied and queued
// under the lock: a state that is written through later must stand behind them.
func (p *partition) copyCut(ctx context.Context, cut *state.Cut) error {
	var space []byte
	for more := true; more; {
		if err := p.changelog.WaitBelow(ctx, sliceBytes); err != nil {
			return err
		}
		p.hold()
		if space == nil {
			space = make([]byte, 0, min(spaceBytes, 256*cut.Len()))
		}
		began, size := time.Now(), 0
		for n := 1; size < sliceBytes && (n%lookEvery != 0 || time.Since(began) < sliceTime); n++ {
			var ref state.Ref
			if ref, more = cut.Next(); !more {
				break
			}
			rec := p.stateRecord(&space, ref)
			size += len(rec.Key) + len(rec.Value)
			if err := p.enqueue(p.changelog, rec, false, nil); err != nil {
				p.letGo()
				return err
			}
		}
		p.letGo()
	}
	return nil
}

// lookEvery is after how many states a slice looks at the clock, which costs half a copy.
const lookEvery = 16

// spaceBytes is how much memory is taken at a time for the copies of a checkpoint.
const spaceBytes = 64 << 10

// stateRecord copies a key's state, with its unpublished verdicts, into a changelog record. Its
// memory is taken off space, which is renewed when it does not suffice.
func (p *partition) stateRecord(space *[]byte, ref state.Ref) fenced.Record {
	key, raw := p.table.Key(ref), p.table.Block(ref)
	pending := p.moved.of(key, p.pending.of(key))
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
	return fenced.Record{Key: buf[:k:k], Value: buf[k:]}
}

// sweepAll is in how many checkpoints a sweep comes round.
const sweepAll = 300

// sweep lets keys leave that have fallen silent: their state matters to no event that may
// still come, and their marks to no replay.
func (p *partition) sweep(ctx context.Context) error {
	if err := p.changelog.WaitBelow(ctx, sliceBytes); err != nil {
		return err
	}
	p.hold()
	defer p.letGo()
	if p.broker == event.NoTime {
		return nil
	}
	var silent [][]byte
	before := p.clock() - p.rules.set.MaxLateness
	for began, left := time.Now(), p.table.Len()/sweepAll+64; left > 0 && time.Since(began) < sliceTime; left -= 64 {
		for ref := range p.table.Sweep(64) {
			b, err := decodeBlock(p.table.Block(ref))
			if err != nil {
				return errors.Join(errBlock, err)
			}
			if b.spent < before && p.durable(b) && !p.pending.has(p.table.Key(ref)) {
				silent = append(silent, append([]byte(nil), p.table.Key(ref)...))
			}
		}
	}
	for _, key := range silent {
		p.table.Delete(key)
		p.exempt.forget(key)
		if err := p.enqueue(p.changelog, fenced.Record{Key: key}, false, nil); err != nil {
			return err
		}
	}
	if len(silent) > 0 {
		p.agg.metrics.holds(p, p.table.Len(), p.table.Bytes()) // on a quiet partition no checkpoint does
	}
	p.agg.metrics.swept.Add(float64(len(silent)))
	return nil
}

// clock is the latest broker time that keys are swept and judged by besides events. This machine's clock bounds it:
// one record from the future, of a producer or a broker whose clock was ahead, must not end other keys'
// windows. One that is behind only keeps keys for longer.
func (p *partition) clock() event.Micros { return min(p.broker, now()) }

// durable reports whether a durable checkpoint covers all that a block has seen.
func (p *partition) durable(b block) bool {
	for l, m := range b.marks {
		if m.next > p.covered[l] {
			return false
		}
	}
	return true
}
