package owner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

const (
	// sliceTime bounds a checkpoint's delay of events at a time. sliceBytes is the amount that it queues before it
	// waits for the changelog.
	sliceTime  = 500 * time.Microsecond
	sliceBytes = 128 << 10

	// lookEvery is after how many states a slice reads the clock, which costs half a copy.
	lookEvery = 16

	// sweepAll is after how many checkpoints a sweep has seen every key.
	sweepAll = 300
)

// closeWithin bounds the last checkpoint. Whoever waits for a released partition, or for a process
// that was told to stop, does not wait for an unreachable Kafka. The next owner replays the events.
const closeWithin = 5 * time.Second

// checkpoints makes processed events durable, in slices between events.
type checkpoints struct {
	*core
	out    *outbox
	ends   *ends
	levels *levels
	quotas *quotas
	turn   chan struct{} // holds one: regular checkpoints and the last one take turns
}

// run makes a checkpoint at every interval, until the partition is closed or fails.
func (k *checkpoints) run() error {
	tick := time.NewTicker(k.env.CheckpointEvery)
	defer tick.Stop()
	for awaited(k.core, tick.C) {
		if err := k.make(k.ctx); err != nil {
			return k.ended(fmt.Errorf("checkpoint: %w", err))
		}
		if err := k.sweep(k.ctx); err != nil {
			return k.ended(fmt.Errorf("sweep: %w", err))
		}
	}
	return nil
}

// last publishes the waiting ends of blocks and what keys have left, and makes the last checkpoint.
func (k *checkpoints) last() {
	ctx, cancel := context.WithTimeout(k.ctx, closeWithin)
	defer cancel()
	_, err := k.ends.publish(ctx, true)
	if err == nil {
		_, err = k.quotas.publish(ctx, true)
	}
	if err == nil {
		err = k.make(ctx)
	}
	if err == nil { // a checkpoint with nothing new waits for neither ends nor tombstones
		err = k.out.flushVerdicts(ctx)
	}
	if err != nil && k.ctx.Err() == nil {
		k.log.Warn("the last checkpoint failed; its events will be replayed", "error", err)
	}
}

// make makes durable what was processed until now, then releases its offsets to the group.
func (k *checkpoints) make(ctx context.Context) error {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	began := time.Now()
	cut, before, err := k.begin(ctx)
	if err != nil {
		return err
	}
	if cut == nil {
		k.durable()
		return nil
	}
	if err := k.copyCut(ctx, cut); err != nil {
		return err
	}
	if _, err := k.quotas.publish(ctx, true); err != nil { // what the events before the cut have left is in no state
		return err
	}
	if err := k.out.flush(ctx, before); err != nil {
		return err
	}
	if err := cut.Encode(); err != nil {
		return err
	}
	if err := k.out.timed(cut.End); err != nil {
		return err
	}
	if err := k.out.changelog.Flush(ctx); err != nil {
		return err
	}
	err = k.out.timed(func() error {
		cut.Covered()
		return nil
	})
	if err != nil {
		return err
	}
	for src := range shard.Sources {
		k.session.MarkOffset(k.topicOf(src), k.id, cut.Covers(src), "")
	}
	k.durable()
	k.env.Metrics.checkpoints.Observe(time.Since(began).Seconds())
	k.lockTimed()
	keys, size := k.shard.Keys(), k.shard.Bytes()
	k.unlockTimed()
	k.env.Metrics.holds(k.id, keys, size)
	return nil
}

// begin cuts, behind the levels of all that the checkpoint covers: they go out in slices before. cut is
// nil when nothing is new.
func (k *checkpoints) begin(ctx context.Context) (cut *shard.Cut, before sent, err error) {
	for {
		k.lockTimed()
		if cut, err = k.shard.BeginCheckpoint(); cut != nil {
			if err = k.out.perform(); err != nil { // packs, perhaps the first to their partitions
				cut = nil
			}
			before = k.out.cut()
		}
		k.unlockTimed()
		if !errors.Is(err, shard.ErrLevelsWait) {
			return cut, before, err
		}
		if err = k.levels.publish(ctx); err != nil {
			return nil, before, err
		}
	}
}

// durable notes that everything counted is durable.
func (k *checkpoints) durable() {
	if k.ctx.Err() == nil {
		k.durableAt.Store(time.Now().UnixNano())
		k.env.Metrics.durable(k.id)
	}
}

// copyCut queues the changed states and the table of producers, in slices between events.
func (k *checkpoints) copyCut(ctx context.Context, cut *shard.Cut) error {
	var turns turns
	for more := true; more; {
		if turns.over() {
			turns.give()
		}
		if err := k.out.changelog.WaitBelow(ctx, sliceBytes); err != nil {
			return err
		}
		cut.MakeRoom()
		err := k.out.timed(func() error {
			began, size := time.Now(), 0
			for n := 1; more && size < sliceBytes && cut.HasRoom() && (n%lookEvery != 0 || time.Since(began) < sliceTime); n++ {
				var bytes int
				bytes, more = cut.CopyNext()
				size += bytes
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for part := range shard.ProducerParts {
		if err := k.out.changelog.WaitBelow(ctx, sliceBytes); err != nil {
			return err
		}
		err := k.out.timed(func() error {
			cut.ProducerPart(part, k.clock())
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sweepAll evicts all idle keys at once.
func (k *checkpoints) sweepAll(ctx context.Context) error {
	for range 2 * sweepAll { // a slice may be cut short
		if err := k.sweep(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sweep evicts idle keys, a part of them after each checkpoint.
func (k *checkpoints) sweep(ctx context.Context) error {
	if err := k.out.changelog.WaitBelow(ctx, sliceBytes); err != nil {
		return err
	}
	evicted := 0
	err := k.out.timed(func() error {
		clock := k.clock()
		for began, left := time.Now(), k.shard.Keys()/sweepAll+shard.SweepKeys; left > 0 && time.Since(began) < sliceTime; left -= shard.SweepKeys {
			n, err := k.shard.Judge().Sweep(clock)
			if err != nil {
				return err
			}
			evicted += n
		}
		if evicted > 0 {
			// A quiet partition has no checkpoint that sets it.
			k.env.Metrics.holds(k.id, k.shard.Keys(), k.shard.Bytes())
		}
		return nil
	})
	k.env.Metrics.swept.Add(float64(evicted))
	return err
}
