package publish

import (
	"context"
	"sync"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/store"
	"github.com/tallygate/tallygate/pipeline/internal/failure"
	"github.com/tallygate/tallygate/pipeline/internal/verdictlog"
)

// worker publishes one partition.
type worker struct {
	p         *Publisher
	partition int32
	offered   *verdictlog.Offered[Record]

	reached int64     // the offset to apply next; store.NoOffset while unknown
	behind  bool      // the topic must be read to its end first
	beat    time.Time // the beat, a multiple of Heartbeat, in which it last wrote
	checked time.Time // when the topic's end was last looked at

	mu      sync.Mutex
	current PartitionStats
}

// checkEvery is the interval at which an owner checks whether the topic has more than it was offered. That happens
// when the owner was replaced and does not know it yet. So this limits how long such an owner keeps reporting that
// everything is applied.
const checkEvery = 10 * time.Second

// endPause is the wait for the log's end where a broker doesn't show it yet.
const endPause = 50 * time.Millisecond

func newWorker(p *Publisher, partition int32) *worker {
	return &worker{
		p: p, partition: partition, offered: newOffered(), reached: store.NoOffset,
		current: PartitionStats{Partition: partition, Shard: p.store.ShardOf(partition), Reached: store.NoOffset},
	}
}

// recordOverhead is about what a Record costs beside its bytes.
const recordOverhead = 64

func newOffered() *verdictlog.Offered[Record] {
	return verdictlog.NewOffered(0, func(r *Record) int64 { return r.Offset },
		func(r *Record) int { return len(r.Key) + len(r.Value) + recordOverhead })
}

func (w *worker) run(ctx context.Context) {
	defer w.p.kafka.Gone(w.partition)
	defer w.p.redis.Gone(w.partition)
	defer w.p.refills.Gone(w.partition)
	pause := failure.NewPause()
	for ctx.Err() == nil {
		err := w.step(ctx)
		switch {
		case err == nil:
			w.p.kafka.Worked(w.partition)
			pause.Reset()
		case ctx.Err() == nil:
			w.p.kafka.Failed(w.partition, err)
			pause.Wait(ctx)
		}
	}
}

// step does what there is to do, or waits for it. Its errors are the topic's: while Redis is away,
// it retries by itself.
func (w *worker) step(ctx context.Context) error {
	if w.reached == store.NoOffset {
		if !w.ask(ctx) {
			return nil
		}
		w.behind = true
	}
	switch {
	case w.behind, !w.p.cfg.PublishOnly && time.Since(w.checked) > checkEvery:
		return w.catchUp(ctx, 0)
	case w.p.cfg.PublishOnly:
		return w.follow(ctx)
	}
	now := event.FromTime(time.Now()) // all that was acknowledged before now has been offered
	first, next, records := w.offered.Take(w.reached)
	switch {
	case first > w.reached:
		return w.catchUp(ctx, first)
	case next > w.reached, w.due():
		w.write(ctx, written{records: records, end: next, applied: now})
	default:
		w.wait(ctx)
	}
	return nil
}

// due reports whether the worker has not written in the present beat. Beats begin at the same
// moments for all partitions, wherever their publishers run. A shard is applied up to the earliest
// of its partitions' moments: if each partition had beats of its own, enforcers would seem to be
// behind by up to one beat more. A clock that is set does no harm.
func (w *worker) due() bool { return !w.beat.Equal(time.Now().Truncate(w.p.cfg.Heartbeat)) }

// untilBeat returns the time until the next beat; 0 when one is due.
func (w *worker) untilBeat() time.Duration {
	if w.due() {
		return 0
	}
	now := time.Now().Round(0) // by the wall clock
	return now.Truncate(w.p.cfg.Heartbeat).Add(w.p.cfg.Heartbeat).Sub(now)
}

// wait returns when something was offered or a heartbeat is due.
func (w *worker) wait(ctx context.Context) {
	t := time.NewTimer(w.untilBeat())
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-w.offered.Wake:
	case <-t.C:
	}
}

// follow waits for the topic's next records and applies them.
func (w *worker) follow(ctx context.Context) error {
	now, due := event.FromTime(time.Now()), w.due()
	f, err := w.p.topic.Fetch(ctx, w.partition, w.reached, w.untilBeat())
	if err != nil {
		return err
	}
	w.note(func(s *PartitionStats) { s.Lag = max(f.End-w.reached, 0) })
	if f.Next < f.End {
		now = 0
	}
	if f.Next > w.reached || due {
		w.write(ctx, written{records: f.Records, end: f.Next, applied: now})
	}
	return nil
}

// catchUp reads the topic from what was reached to its end, at least to the offset atLeast, and
// then applies each key's last record. It reads all before it writes anything, since a block that
// was cleared long ago must not come back meanwhile.
func (w *worker) catchUp(ctx context.Context, atLeast int64) error {
	now := event.FromTime(time.Now())
	refill := newRefill(w.reached == 0, now-event.FromDuration(w.p.cfg.Grace))
	next, end := w.reached, atLeast
	for first := true; first || next < end; first = false {
		f, err := w.p.topic.Fetch(ctx, w.partition, next, 0)
		if err != nil {
			return err
		}
		if first {
			end = max(end, f.End)
		}
		refill.add(f.Records)
		next = f.Next
		w.note(func(s *PartitionStats) { s.Lag = max(f.End-w.reached, 0) })
		if next == f.End && next < end {
			// This broker's view of the log's end is behind an acknowledged record; it catches up
			// soon.
			if !retry.Sleep(ctx, endPause) {
				return nil
			}
		}
	}
	w.behind, w.checked = false, time.Now()
	records := refill.records()
	w.write(ctx, written{records: records, end: next, applied: now, partial: refill.empty})
	if !w.behind && ctx.Err() == nil {
		w.p.refills.Ended(w.partition, len(records))
	}
	return nil
}

// written is the work from the reached offset on.
type written struct {
	records []Record
	end     int64 // the offset behind them
	// Up to when the partition has been applied then; 0 when end is not its end.
	applied event.Micros
	partial bool // records that only matter where Redis holds something were left out
}

// write applies in batches. If another publisher was faster, it continues after that one's batch.
// The worker is behind when Redis has less than before, or when another publisher wrote to a
// Redis that this one considered empty.
func (w *worker) write(ctx context.Context, what written) {
	records := what.records
	for beat := true; beat || w.reached < what.end; beat = false {
		b := store.Batch{Partition: w.partition, Start: w.reached, Next: what.end, Applied: what.applied}
		b.Records = records[:min(len(records), w.p.cfg.BatchSize)]
		if rest := records[len(b.Records):]; len(rest) > 0 {
			b.Next, b.Applied = rest[0].Offset, 0
		}
		reached, ok := w.apply(ctx, b)
		if ctx.Err() != nil {
			return
		}
		if ok && b.Applied > 0 {
			w.beat = b.Applied.Time().Truncate(w.p.cfg.Heartbeat)
		}
		if reached < b.Start {
			w.p.refills.Began(w.partition, b.Start, reached)
		}
		w.behind = reached < b.Start || what.partial && !ok
		w.reached = reached
		w.note(func(s *PartitionStats) {
			s.Reached, s.Lag = reached, max(what.end-reached, 0)
			if ok && b.Applied > 0 {
				s.Applied = b.Applied
			} else if w.behind {
				s.Applied = 0
			}
		})
		if w.behind {
			return
		}
		for len(records) > 0 && records[0].Offset < reached {
			records = records[1:]
		}
	}
}

// ask finds out what Redis has reached. It is false when ctx ended.
func (w *worker) ask(ctx context.Context) bool {
	reached, _ := w.apply(ctx, store.Batch{Partition: w.partition, Start: store.NoOffset, Next: store.NoOffset})
	if ctx.Err() != nil {
		return false
	}
	w.reached = reached
	w.note(func(s *PartitionStats) { s.Reached = reached })
	return true
}

// apply retries until Redis answers or ctx ends.
func (w *worker) apply(ctx context.Context, b store.Batch) (reached int64, ok bool) {
	pause := failure.NewPause()
	for ctx.Err() == nil {
		reached, ok, err := w.p.store.Apply(ctx, b)
		if err == nil {
			w.p.redis.Worked(w.partition)
			w.note(func(s *PartitionStats) {
				if ok {
					s.Applies++
				} else if b.Start != store.NoOffset {
					s.Refused++
				}
			})
			return reached, ok
		}
		if ctx.Err() == nil {
			w.p.redis.Failed(w.partition, err)
			if failure.Of(err) == failure.Memory && w.madeRoom(ctx) {
				continue
			}
			pause.Wait(ctx)
		}
	}
	return 0, false
}

// madeRoom removes expired verdicts from a Redis without memory. Batches do that too, but not when
// Redis refuses them: without this, a blocklist that filled Redis by itself would stay stuck.
func (w *worker) madeRoom(ctx context.Context) bool {
	removed, err := w.p.store.Sweep(ctx, w.partition)
	return err == nil && removed > 0
}

func (w *worker) note(change func(*PartitionStats)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.current)
}

func (w *worker) stats() PartitionStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.current
	s.Dropped = w.offered.Dropped()
	return s
}
