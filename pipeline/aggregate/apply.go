package aggregate

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// process applies a bundle's records, and lets others in between them.
func (p *partition) process(b *bundle) {
	defer p.panicked()
	p.mu.Lock()
	for more := true; more; {
		side := p.sideFull()
		if p.waiting.Load() > 0 || len(p.full) > 0 || side {
			full := p.full
			p.full = nil
			p.mu.Unlock()
			p.awaitRoom(full)
			runtime.Gosched()
			if side {
				p.agg.side.waitRoom(p.ctx, p.session.Context())
			}
			p.mu.Lock()
		}
		if err := p.takeAcks(); err != nil {
			p.die(p.ended(err))
			break
		}
		if p.working.Err() != nil {
			break // failed or released: whoever takes over reads it again
		}
		if e := b.epoch(); e > p.shard.Epoch(b.source) && !p.enterEpoch(b.source, e) {
			break // the checkpoint failed, or the partition is released
		}
		var err error
		if more, err = p.apply(b); err != nil {
			p.die(p.ended(err))
			break
		}
	}
	p.agg.metrics.tell(p)
	p.mu.Unlock()
}

// enqueue appends a record under the partition's lock, without waiting: whoever waits for the lock is not
// to wait for a topic that takes no appends. Where too much is queued then, no more events are applied
// until there is room again.
func (p *partition) enqueue(w *fenced.Writer, rec fenced.Record, urgent bool, done fenced.Done) error {
	full, err := w.Enqueue(rec, urgent, done)
	if full && !slices.Contains(p.full, w) {
		p.full = append(p.full, w)
	}
	return err
}

// awaitRoom waits until writers have room, or the partition works no more. Without the lock.
func (p *partition) awaitRoom(full []*fenced.Writer) {
	for _, w := range full {
		if w.AwaitRoom(p.working) != nil {
			return
		}
	}
}

// sideFull reports whether so much waits for the audit and the dead-letter topic that nothing may add to it.
func (p *partition) sideFull() bool { return p.agg.side != nil && p.agg.side.full() }

// applyAtOnce is how many records may keep others waiting that none of the rules counts.
const applyAtOnce = 256

// apply applies the first of a bundle's records, until enough is gathered, and reports whether
// there may be more.
func (p *partition) apply(b *bundle) (more bool, err error) {
	s, rec, clock := p.shard, &p.record, p.clock()
	next := s.Next(b.source)
	for n := 0; n < applyAtOnce && !s.Gathered() && (n == 0 || !p.sideFull()); n++ {
		if b.epoch() > s.Epoch(b.source) { // first a checkpoint
			more = true
			break
		}
		more, err = b.next(rec)
		if bad, ok := errors.AsType[*kafkalog.Unreadable](err); ok {
			next = p.passOver(b.source, next, bad)
			more = true
			continue
		}
		if err != nil {
			return false, err
		}
		if !more {
			next = max(next, b.place)
			break
		}
		if rec.Offset < next {
			s.Replayed()
			continue
		}
		if err := s.Record(b.source, rec, clock); err != nil {
			return false, err
		}
		if err := p.perform(); err != nil {
			return false, err
		}
		next = rec.Offset + 1
	}
	if err := s.Step(b.source, next, clock); err != nil {
		return false, err
	}
	p.wakeEnds()
	return more, p.perform()
}

// passOver goes on behind records that nobody can read, now or later.
func (p *partition) passOver(src shard.Source, next int64, bad *kafkalog.Unreadable) (behind int64) {
	behind, records := p.shard.PassOver(src, next, shard.Unreadable{
		First: bad.First, Last: bad.Last, TooLarge: errors.Is(bad.Err, kafkalog.ErrTooLarge), Why: bad.Err, Detail: bad.Error(),
	})
	p.agg.metrics.passedOver.Add(float64(records))
	return behind
}

// panicked ends the instance when an event made it panic. goka would recover from that, and
// everything would wait for the lock without a word.
func (p *partition) panicked() {
	r := recover()
	if r == nil {
		return
	}
	p.die(fmt.Errorf("%w: panic: %v\n%s", errFatal, r, debug.Stack()))
	p.mu.Unlock() // what is half done stays in memory: nothing is written after the end
}
