package owner

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

// intake feeds the shard with records. Only the partition's own goroutine calls process.
type intake struct {
	*core
	out         *outbox
	checkpoints *checkpoints
	ends        *ends
	levels      *levels
	quotas      *quotas
	packs       *packs
	record      record.Record // under mu
	turns       turns
}

// process applies a bundle's records, and makes room for other goroutines in between.
func (i *intake) process(b *Bundle) {
	defer i.panicked()
	i.mu.Lock()
	i.shard.Packs().Use(i.env.Packs != nil && i.env.Packs())
	for more := true; more; {
		if i.waiting.Load() > 0 || i.out.crowded() || i.turns.over() {
			full := i.out.takeFull()
			i.mu.Unlock()
			i.out.awaitRoom(full)
			i.turns.give()
			i.mu.Lock()
		}
		if err := i.out.takeAcks(); err != nil {
			i.fail(i.ended(err))
			break
		}
		if i.working.Err() != nil {
			break // failed or released: the next owner reads it again
		}
		if e := b.epoch(); e > i.shard.Log().Epoch(b.Source) && !i.enterEpoch(b.Source, e) {
			break // the checkpoint failed, or the partition was released
		}
		var err error
		if more, err = i.apply(b); err != nil {
			i.fail(i.ended(err))
			break
		}
	}
	i.shard.Forget()
	i.record = record.Record{}
	i.tally()
	i.stateBytes.Store(i.shard.Bytes())
	i.mu.Unlock()
}

// applyAtOnce bounds the records that no rule counts which may delay other goroutines.
const applyAtOnce = 256

// apply applies the first of a bundle's records, until enough are gathered. It reports whether
// there may be more.
func (i *intake) apply(b *Bundle) (more bool, err error) {
	s, rec, clock := i.shard, &i.record, i.clock()
	next := s.Log().Next(b.Source)
	for n := 0; n < applyAtOnce && !s.Gathered() && (n == 0 || !i.out.auxFull() && !i.out.forwardsFull()); n++ {
		if b.epoch() > s.Log().Epoch(b.Source) { // a checkpoint comes first
			more = true
			break
		}
		more, err = b.next(rec)
		if bad, ok := errors.AsType[*kafkalog.Unreadable](err); ok {
			next = i.passOver(b.Source, next, bad)
			more = true
			continue
		}
		if err != nil {
			return false, err
		}
		if !more {
			next = max(next, b.Place)
			break
		}
		if rec.Offset < next {
			s.Log().Replayed()
			continue
		}
		if err := s.Record(b.Source, rec, clock); err != nil {
			return false, err
		}
		if err := i.out.perform(); err != nil {
			return false, err
		}
		next = rec.Offset + 1
	}
	if err := s.Step(b.Source, next, clock); err != nil {
		return false, err
	}
	i.ends.wake()
	i.levels.wake()
	i.quotas.wake()
	i.packs.forward()
	return more, i.out.perform()
}

// enterEpoch makes a checkpoint durable that names the leader epoch of the next records. It gives
// up the lock meanwhile. It returns false if that failed: then nothing of the epoch may be counted.
// The partition is locked.
//
// The checkpoint continues even if the session ends meanwhile: one at the release could not replace
// it.
func (i *intake) enterEpoch(src shard.Source, epoch int32) bool {
	i.shard.Log().EnterEpoch(src, epoch)
	i.mu.Unlock()
	err := i.checkpoints.make(i.ctx)
	i.mu.Lock()
	if err != nil && i.ctx.Err() == nil {
		i.fail(fmt.Errorf("note that leader epoch %d of %s begins: %w", epoch, i.topicOf(src), err))
	}
	return err == nil && i.working.Err() == nil
}

// passOver continues after records that can never be read.
func (i *intake) passOver(src shard.Source, next int64, bad *kafkalog.Unreadable) (behind int64) {
	behind, records := i.shard.Log().PassOver(src, next, shard.Unreadable{
		First: bad.First, Last: bad.Last, TooLarge: errors.Is(bad.Err, kafkalog.ErrTooLarge), Why: bad.Err, Detail: bad.Error(),
	})
	i.env.Metrics.passedOver.Add(float64(records))
	return behind
}

// panicked ends the instance if an event made it panic. goka would recover from the panic, and
// everything would wait for the lock, silently.
func (i *intake) panicked() {
	r := recover()
	if r == nil {
		return
	}
	i.fail(fmt.Errorf("%w: panic: %v\n%s", ErrFatal, r, debug.Stack()))
	i.mu.Unlock() // half-done changes stay in memory: nothing is written after the end
}
