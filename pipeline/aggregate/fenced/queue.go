package fenced

import (
	"context"
	"slices"
	"time"
)

// recordOverhead estimates what a record takes beside its key and value.
const recordOverhead = 16

// Append queues rec after all earlier records. It blocks only while the queue is full. A batch ends
// after its last urgent record, and goes over Config.Urgent.
//
// done, if not nil, is called exactly once unless Append returns an error: in the order of the
// Appends, from the goroutine of Run. It receives the record's offset and the time at which the
// broker appended it. The time is zero unless the topic has LogAppendTime; if a topic without it
// answers a repetition, it is the owner's own. Or done receives the error that ended the writer;
// then it is unknown whether the record is in the log. done must not block, and must not Append to
// this writer.
//
// rec's bytes belong to the writer until done returns, or Flush if done is nil.
func (w *Writer) Append(ctx context.Context, rec Record, urgent bool, done Done) error {
	e := entry{rec: rec, size: rec.size(), urgent: urgent, done: done}
	room := w.room(urgent)
	for {
		w.mu.Lock()
		if w.err != nil {
			defer w.mu.Unlock()
			return w.err
		}
		if w.bytes == 0 || w.bytes+e.size <= room {
			w.add(e)
			w.mu.Unlock()
			w.wake()
			return nil
		}
		changed := w.changing()
		w.mu.Unlock()
		if err := awaitChange(ctx, changed); err != nil {
			return err
		}
	}
}

// Enqueue is Append for callers that must not wait. It queues rec whatever is queued, and reports
// whether the queue is over its bound. Then call AwaitRoom before the next records.
func (w *Writer) Enqueue(rec Record, urgent bool, done Done) (full bool, err error) {
	w.mu.Lock()
	if w.err != nil {
		defer w.mu.Unlock()
		return false, w.err
	}
	w.add(entry{rec: rec, size: rec.size(), urgent: urgent, done: done})
	full = w.bytes > w.room(urgent)
	w.mu.Unlock()
	w.wake()
	return full, nil
}

// AwaitRoom waits until the queue is within its bound.
func (w *Writer) AwaitRoom(ctx context.Context) error {
	return w.WaitBelow(ctx, w.id.cfg.QueueBytes)
}

// room returns the bytes that may be queued.
func (w *Writer) room(urgent bool) int {
	if urgent {
		return 2 * w.id.cfg.QueueBytes
	}
	return w.id.cfg.QueueBytes
}

// add puts a record into the queue. b.mu must be held.
func (b *backlog) add(e entry) {
	b.queue = append(b.queue, e)
	b.bytes += e.size
	b.appended++
}

// Queued returns how many bytes were appended and are not acknowledged.
func (w *Writer) Queued() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes
}

// WaitBelow waits until at most so many bytes are queued.
func (w *Writer) WaitBelow(ctx context.Context, bytes int) error {
	return w.wait(ctx, func() bool { return w.bytes <= bytes })
}

// Flush waits until everything appended before is acknowledged and its dones have returned.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	target := w.appended
	w.mu.Unlock()
	return w.wait(ctx, func() bool { return w.finished >= target })
}

func (b *backlog) wait(ctx context.Context, ready func() bool) error {
	for {
		b.mu.Lock()
		if b.err != nil {
			defer b.mu.Unlock()
			return b.err
		}
		if ready() {
			b.mu.Unlock()
			return nil
		}
		changed := b.changing()
		b.mu.Unlock()
		if err := awaitChange(ctx, changed); err != nil {
			return err
		}
	}
}

// nextBatch makes the head of the queue the batch in flight: up to most bytes, ending with the last
// urgent record within that.
func (b *backlog) nextBatch(most int) (batch []entry, urgent bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return nil, false, b.err
	}
	waiting := b.queue[b.head:]
	n, size, lastUrgent := 0, 0, -1
	for n < len(waiting) && (n == 0 || size+waiting[n].size <= most) {
		if waiting[n].urgent {
			lastUrgent = n
		}
		size += waiting[n].size
		n++
	}
	if lastUrgent >= 0 {
		n = lastUrgent + 1
	}
	b.batch = append(b.batch[:0], waiting[:n]...)
	clear(waiting[:n])
	b.head += n
	if b.head == len(b.queue) {
		b.queue, b.head = b.queue[:0], 0
	} else if b.head > len(b.queue)/2 {
		b.queue, b.head = slices.Delete(b.queue, 0, b.head), 0
	}
	return b.batch, lastUrgent >= 0, nil
}

// finish reports the outcome of a batch to its records' dones. The records count as queued until
// then.
func (b *backlog) finish(batch []entry, a ack, err error) {
	size := 0
	for i := range batch {
		e := &batch[i]
		size += e.size
		switch {
		case e.done == nil:
		case err != nil:
			e.done(-1, time.Time{}, err)
		default:
			e.done(a.offset+int64(i), a.at, nil)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes -= size
	b.finished += uint64(len(batch))
	clear(batch)
	b.announce()
}

// end makes err the writer's end, unless it has one, reports it to everything queued, and returns
// the end.
func (b *backlog) end(err error) error {
	b.mu.Lock()
	if b.err == nil {
		b.err = err
	}
	err = b.err
	rest := b.queue[b.head:]
	b.queue, b.head = nil, 0
	b.mu.Unlock()
	b.finish(rest, ack{}, err)
	b.wake()
	return err
}

func (b *backlog) wake() {
	select {
	case b.work <- struct{}{}:
	default:
	}
}

// changing returns a channel that is closed at the next change. b.mu must be held.
func (b *backlog) changing() <-chan struct{} {
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
}

// announce wakes all goroutines that wait for a change. b.mu must be held.
func (b *backlog) announce() {
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

func awaitChange(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *Record) size() int {
	n := recordOverhead + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value) + 4
	}
	return n
}
