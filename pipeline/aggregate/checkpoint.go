package aggregate

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

const (
	// sliceTime is how long a checkpoint keeps events waiting at a time, sliceBytes how much
	// it queues before it waits for the changelog.
	sliceTime  = 500 * time.Microsecond
	sliceBytes = 128 << 10

	// lookEvery is after how many states a slice looks at the clock, which costs half a copy.
	lookEvery = 16

	// sweepAll is in how many checkpoints a sweep comes round.
	sweepAll = 300

	// closeWithin bounds the last checkpoint: whoever waits for a partition that is released, or for
	// a process that was told to stop, does not wait for a Kafka that is away. The events are
	// replayed by the next owner.
	closeWithin = 5 * time.Second
)

// checkpoints makes one every so often, until the partition is closed or fails.
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
		p.log.Warn("the last checkpoint failed; its events will be replayed", "error", err)
	}
}

// checkpoint makes durable what was processed up to now, then releases its offsets to the group.
func (p *partition) checkpoint(ctx context.Context) error {
	select {
	case p.checkpointing <- struct{}{}:
		defer func() { <-p.checkpointing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	began := time.Now()
	p.lockTimed()
	cut, err := p.shard.BeginCheckpoint()
	loops := maps.Clone(p.loops)
	side := 0
	if cut != nil {
		side = p.side.cut()
	}
	p.unlockTimed()
	if err != nil {
		return err
	}
	if cut == nil {
		p.agg.metrics.durable(p)
		return nil
	}
	if err := p.copyCut(ctx, cut); err != nil {
		return err
	}
	if err := p.flush(ctx, loops, side); err != nil {
		return err
	}
	if err := p.timed(func() error { return p.shard.EndCheckpoint(cut) }); err != nil {
		return err
	}
	if err := p.changelog.Flush(ctx); err != nil {
		return err
	}
	err = p.timed(func() error {
		p.shard.Covered(cut)
		return nil
	})
	if err != nil {
		return err
	}
	for src := range shard.Sources {
		p.session.MarkOffset(p.topicOf(src), p.id, cut.Covers(src), "")
	}
	p.agg.metrics.checkpointed(p, time.Since(began))
	return nil
}

// timed calls f with the partition locked, and carries out what it asked for.
func (p *partition) timed(f func() error) error {
	p.lockTimed()
	defer p.unlockTimed()
	if err := f(); err != nil {
		return err
	}
	return p.perform()
}

// flush waits until all that was asked for before is acknowledged: states, the verdicts that these acknowledgements
// ask for, forwards to other partitions, auxiliary output.
func (p *partition) flush(ctx context.Context, loops map[int32]*fenced.Writer, side int) error {
	if err := p.changelog.Flush(ctx); err != nil {
		return err
	}
	if err := p.settleAcks(); err != nil {
		return err
	}
	if err := p.verdicts.Flush(ctx); err != nil {
		return err
	}
	for _, w := range loops {
		if err := w.Flush(ctx); err != nil {
			return err
		}
	}
	return p.side.wait(ctx, side)
}

// copyCut queues the changed states, and the table of producers, in slices between events.
func (p *partition) copyCut(ctx context.Context, cut *shard.Cut) error {
	for more := true; more; {
		if err := p.changelog.WaitBelow(ctx, sliceBytes); err != nil {
			return err
		}
		err := p.timed(func() error {
			began, size := time.Now(), 0
			for n := 1; more && size < sliceBytes && (n%lookEvery != 0 || time.Since(began) < sliceTime); n++ {
				var bytes int
				bytes, more = p.shard.CopyNext(cut)
				size += bytes
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for part := range shard.ProducerParts {
		if err := p.changelog.WaitBelow(ctx, sliceBytes); err != nil {
			return err
		}
		err := p.timed(func() error {
			p.shard.ProducerPart(part, p.clock())
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sweep lets idle keys go, a part of them after each checkpoint.
func (p *partition) sweep(ctx context.Context) error {
	if err := p.changelog.WaitBelow(ctx, sliceBytes); err != nil {
		return err
	}
	evicted := 0
	err := p.timed(func() error {
		clock := p.clock()
		for began, left := time.Now(), p.shard.Keys()/sweepAll+shard.SweepKeys; left > 0 && time.Since(began) < sliceTime; left -= shard.SweepKeys {
			n, err := p.shard.Sweep(clock)
			if err != nil {
				return err
			}
			evicted += n
		}
		if evicted > 0 {
			p.agg.metrics.holds(p, p.shard.Keys(), p.shard.Bytes()) // on a quiet partition no checkpoint does
		}
		return nil
	})
	p.agg.metrics.swept.Add(float64(evicted))
	return err
}
