package publish

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/internal/failure"
	"github.com/tallygate/tallygate/pipeline/internal/verdictlog"
)

// unknown stands for an offset that Redis was not asked for yet. No batch begins there: one that
// seems to asks only.
const unknown = -1

// endPause is the wait for the log's end where a broker doesn't show it yet.
const endPause = 50 * time.Millisecond

// worker publishes one partition. One goroutine calls its shard, one call at a time; errands that wait
// for others run beside it, and it takes in what they brought.
type worker struct {
	p         *Publisher
	partition int32
	shard     int
	owner     Owner
	offered   *verdictlog.Offered[Record]
	woken     chan struct{}

	reached  int64     // the offset to apply next
	least    int64     // the verdict topic is known to reach to there
	behind   bool      // it is being read from there
	refilled int       // records, since Redis had less than before
	wrote    time.Time // when Redis answered last

	warden   protocol.Warden
	reporter protocol.Reporter
	marks    marks

	mu      sync.Mutex
	version uint64 // of the rules, that was applied
	current PartitionStats
}

func newWorker(p *Publisher, partition int32, owner Owner, end int64) *worker {
	w := &worker{
		p: p, partition: partition, shard: int(partition) % p.cfg.Shards, owner: owner,
		offered: verdictlog.NewOffered(end, func(r *Record) int64 { return r.Offset }, size),
		woken:   make(chan struct{}, 1), reached: unknown, least: end,
		warden: protocol.Warden{Took: p.mono()},
	}
	w.current = PartitionStats{Partition: partition, Shard: w.shard, Reached: unknown, DoubtSince: p.clock(), Why: "Redis has not answered yet"}
	w.marks.init(w)
	return w
}

// size is about how many bytes a record takes.
func size(r *Record) int {
	n := 100
	if l := r.Level; l != nil {
		n += len(l.Key) + 50*len(l.Settles)
		for i := range l.Sections {
			n += 100 + 16*len(l.Sections[i].Steps)
		}
	}
	return n
}

// active tells whether there is something to publish: rules are strict, or Redis does not know yet that
// none is.
func (w *worker) active() bool {
	version, strict, until := w.p.rules.state()
	if strict {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.version != version && w.p.mono() < until
}

func (w *worker) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

func (w *worker) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer func() {
		cancel()
		beside.Wait()
		w.marks.running.Wait()
		w.gone()
	}()
	if w.p.cfg.Shards > 1 {
		beside.Go(func() { w.report(ctx) })
	}
	pause := failure.NewPause()
	for ctx.Err() == nil {
		if !w.active() {
			w.sleep(ctx)
			continue
		}
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

// sleep waits until rules are strict.
func (w *worker) sleep(ctx context.Context) {
	w.gone()
	w.note(func(s *PartitionStats) { s.Strict, s.Grants = false, false })
	select {
	case <-ctx.Done():
	case <-w.woken:
	}
}

// gone ends the outages that this worker was a part of.
func (w *worker) gone() {
	w.p.redis.Gone(w.partition)
	w.p.kafka.Gone(w.partition)
	w.p.refills.Gone(w.partition)
	w.marks.gone()
	for shard := range w.p.cfg.Shards {
		w.p.reports.Gone(w.reporterOf(shard))
	}
}

// step does what there is to do, or waits for it. Its errors are the topic's: while Redis is away, it
// retries by itself.
func (w *worker) step(ctx context.Context) error {
	if w.reached == unknown {
		w.warden.Last = w.owner.LastGrants() // not in Own, whose caller may hold what this waits for
		w.marks.granted = w.warden.Last
		w.apply(ctx, &protocol.Batch{Start: unknown, Next: unknown})
		return nil
	}
	w.marks.take()
	w.marks.next(ctx)
	first, next, records := w.offered.Take(w.reached)
	w.behind = false
	switch {
	case first > w.reached:
		return w.catchUp(ctx, first)
	case next > w.reached:
		w.write(ctx, records, next, false)
	case w.reached < w.least:
		return w.catchUp(ctx, w.least)
	case w.untilBeat() <= 0:
		w.write(ctx, nil, w.reached, false)
	default:
		w.wait(ctx)
	}
	return nil
}

func (w *worker) untilBeat() time.Duration { return w.p.cfg.Heartbeat - time.Since(w.wrote) }

// wait returns when there is something to do, or a heartbeat is due.
func (w *worker) wait(ctx context.Context) {
	t := time.NewTimer(w.untilBeat())
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-w.offered.Wake:
	case <-w.woken:
	case done := <-w.marks.done:
		done()
	case <-t.C:
	}
}

// catchUp reads the topic from what was reached to an offset, and applies it.
func (w *worker) catchUp(ctx context.Context, end int64) error {
	w.behind = true
	from, next, gap := w.reached, w.reached, false
	var records []Record
	for next < end && w.reached == from && ctx.Err() == nil {
		f, err := w.p.topic.Fetch(ctx, w.partition, next, 0)
		if err != nil {
			return err
		}
		if f.Next == next {
			// This broker's view of the log's end is behind an acknowledged record; it catches up soon.
			retry.Sleep(ctx, endPause)
			continue
		}
		records, next, gap = append(records, w.parse(f.Records)...), f.Next, gap || f.Gap
		if len(records) < w.p.cfg.BatchSize && next < end {
			continue
		}
		w.write(ctx, records, next, gap)
		if w.reached != next {
			return nil // another publisher was faster, or Redis lost its memory
		}
		from, records, gap = next, nil, false
	}
	if next >= end {
		w.p.refills.Ended(w.partition, w.refilled)
	}
	return nil
}

// parse takes the records that are about strict limits.
func (w *worker) parse(records []verdictlog.Record) (out []Record) {
	for i := range records {
		r := &records[i]
		parsed, err := protocol.ParseRecord(r.Key, r.Value)
		switch {
		case err == nil:
			out = append(out, Record{r.Offset, parsed})
		case !errors.Is(err, protocol.ErrOtherRecord):
			if leftOut, due := w.p.malformed.Due(); due {
				w.p.cfg.Logger.Error("skipping a malformed record about strict limits in the verdict topic; further ones are not logged for a minute",
					"topic", w.p.cfg.Topic, "partition", w.partition, "offset", r.Offset, "error", err, "left_out", leftOut)
			}
		}
	}
	return out
}

// write applies in batches, from what was reached to end. gap says that records are missing among them.
// If another publisher was faster, it continues behind that one's batch.
func (w *worker) write(ctx context.Context, records []Record, end int64, gap bool) {
	for first := true; first || w.reached < end; first = false {
		start := w.reached
		b := batch(records, start, end, w.p.cfg.BatchSize)
		// Permits that a missing record settled are forgotten with the first batch. Until the last one
		// nothing is granted: the owner has not said that this memory may.
		b.Begin = gap
		if !w.apply(ctx, b) || w.reached < start {
			return
		}
		w.refilled += len(b.Records)
		gap = gap && w.reached != b.Next
		w.least = max(w.least, min(w.reached, end))
		for len(records) > 0 && records[0].Offset < w.reached {
			records = records[1:]
		}
	}
}

// apply retries until Redis answers, and takes in the answer. It is false when there is no answer.
func (w *worker) apply(ctx context.Context, b *protocol.Batch) bool {
	pause := failure.NewPause()
	for ctx.Err() == nil && w.active() {
		w.marks.take()
		b.Partition, b.Of = w.partition, w.p.cfg.Partitions
		b.Beat = w.p.clock()
		b.Forwarded, b.Settled = w.reporter.Forwarded(w.marks.progress), w.warden.Settled(w.marks.progress)
		a, err := w.p.cfg.Redis.Apply(ctx, b)
		if err == nil && !a.OK && a.Reached == b.Start {
			err = fmt.Errorf("shard %d refuses what comes next, at offset %d of partition %d", w.shard, b.Start, w.partition)
		}
		if err == nil {
			w.p.redis.Worked(w.partition)
			w.wrote = time.Now()
			w.answered(ctx, b, &a)
			return true
		}
		if ctx.Err() == nil {
			w.p.redis.Failed(w.partition, err)
			pause.Wait(ctx)
		}
	}
	return false
}

// answered takes in what the shard says.
func (w *worker) answered(ctx context.Context, b *protocol.Batch, a *protocol.Applied) {
	now := w.p.mono()
	if a.Reached < w.reached {
		w.p.refills.Began(w.partition, w.reached, a.Reached)
		w.refilled = 0
	}
	w.reached = a.Reached
	w.p.rules.epoch(w.shard, a.Epoch)
	holds, at := w.p.rules.held(), &w.marks.progress
	w.warden.Use(holds, at.Rules == holds.Rules && a.Reached >= at.Verdicts, now)
	if w.reporter.Answered(a) {
		w.marks.input.want()
	}
	if w.warden.Answered(a, now) {
		w.marks.loop.want()
	}
	w.marks.lost(ctx, a, now)
	w.marks.grant(ctx, now)
	w.marks.next(ctx)
	w.noteAnswer(b, a, now)
}
