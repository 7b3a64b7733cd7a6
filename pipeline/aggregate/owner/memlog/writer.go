package memlog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

// queueBytes bounds a writer's queue, as that of a fenced one is.
const queueBytes = 1 << 20

// writer appends what is queued while it runs, one record after the other. Batches would only make it later: what an
// owner sees of them is the order of acknowledgements, which is that of the records.
type writer struct {
	id        *identity
	topic     string
	partition int32
	work      chan struct{} // holds one when something is queued

	mu    sync.Mutex
	queue []entry // the first may be on its way
	bytes int
	less  chan struct{} // closed when less is queued
	err   error         // why it has ended
}

// entry is a queued record, and whom to tell that it is in the log, or that it may not be.
type entry struct {
	rec  fenced.Record
	done fenced.Done
}

func (e *entry) size() int { return len(e.rec.Key) + len(e.rec.Value) }

// FenceAt shuts earlier owners out. A writer that has never fenced may append: its epoch is compared with what others
// have fenced.
func (w *writer) FenceAt(context.Context) (offset int64, at time.Time, err error) {
	offset, err = w.id.log.fence(w.topic, w.partition, w.id.ProducerID(), w.id.epoch)
	return offset, time.Now(), err
}

// Enqueue takes the record whatever waits. All are as urgent: nothing of a checkpoint is ahead of a verdict for longer
// than its append takes, unless there is no room.
func (w *writer) Enqueue(rec fenced.Record, _ bool, done fenced.Done) (full bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return false, w.err
	}
	e := entry{rec, done}
	w.queue, w.bytes = append(w.queue, e), w.bytes+e.size()
	select {
	case w.work <- struct{}{}:
	default:
	}
	return w.bytes > queueBytes, nil
}

// AwaitRoom, WaitBelow and Flush return the writer's error once it has ended: their callers would wait forever for what
// is not appended any more.
func (w *writer) AwaitRoom(ctx context.Context) error { return w.WaitBelow(ctx, queueBytes) }
func (w *writer) WaitBelow(ctx context.Context, bytes int) error {
	return w.await(ctx, func() bool { return w.bytes <= bytes })
}
func (w *writer) Flush(ctx context.Context) error {
	return w.await(ctx, func() bool { return len(w.queue) == 0 })
}

// await waits until ok, which is called with w locked. It looks again at each acknowledgement.
func (w *writer) await(ctx context.Context, ok func() bool) error {
	for {
		w.mu.Lock()
		is, err, less := ok(), w.err, w.less
		w.mu.Unlock()
		if err != nil || is {
			return err
		}
		select {
		case <-less:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Run leaves a record in the queue until its acknowledgement has been told, so that who waits for the queue to be empty
// finds the shard told, too.
func (w *writer) Run(ctx context.Context) error {
	for {
		e, ok := w.first()
		if !ok {
			select {
			case <-w.work:
			case <-ctx.Done():
				return w.end(context.Cause(ctx))
			}
			continue
		}
		offset, at, err := w.append(ctx, &e.rec)
		if err != nil {
			return w.end(err)
		}
		if e.done != nil {
			e.done(offset, at, nil)
		}
		w.mu.Lock()
		w.queue, w.bytes = w.queue[1:], w.bytes-e.size()
		w.told()
		w.mu.Unlock()
	}
}

// first is the record to append next.
func (w *writer) first() (e entry, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return e, false
	}
	return w.queue[0], true
}

// told wakes those who wait. w is locked.
func (w *writer) told() {
	close(w.less)
	w.less = make(chan struct{})
}

// append waits while the partition has no room, and refuses an owner that was replaced. It looks for that before each
// record, also after it has waited: the owner may have been replaced meanwhile.
func (w *writer) append(ctx context.Context, rec *fenced.Record) (offset int64, at time.Time, err error) {
	var headers [][]byte
	for _, h := range rec.Headers {
		headers = append(headers, h.Key, h.Value)
	}
	l := w.id.log
	for {
		if ctx.Err() != nil {
			return 0, at, context.Cause(ctx)
		}
		l.mu.Lock()
		p, changed := l.part(w.topic, w.partition), l.changed
		if w.id.epoch < p.epochs[w.id.ProducerID()] {
			l.mu.Unlock()
			return 0, at, fmt.Errorf("append to %s/%d: %w", w.topic, w.partition, fenced.ErrFenced)
		}
		if !p.full || p.room > 0 {
			defer l.mu.Unlock()
			p.room--
			at = time.Now()
			return l.append(p, kafkalog.Record{Key: rec.Key, Value: rec.Value, Headers: record.HeadersOf(headers...)}), at, nil
		}
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// end is final, as with Kafka: a takeover makes new writers. It tells all that is queued why it is not known to be in the log.
func (w *writer) end(err error) error {
	w.mu.Lock()
	queue := w.queue
	w.queue, w.bytes, w.err = nil, 0, err
	w.told()
	w.mu.Unlock()
	for _, e := range queue {
		if e.done != nil {
			e.done(-1, time.Time{}, err)
		}
	}
	return err
}
