package fenced

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// Writer appends to one topic-partition, in the order of its Appends, with one batch in flight. An
// identity has at most one writer per topic-partition. Its methods may be called by many
// goroutines.
type Writer struct {
	id        *Identity
	topic     string
	partition int32

	// slot is held while sending. It guards the fields up to the blank line.
	slot   chan struct{}
	stamp  stamp // that seq counts for
	seq    int32 // of the next record
	fenced bool  // a fence record of this stamp is in the log
	slow   bool  // the last attempt waited for replicas in vain
	lowest int64 // an append at an offset below it went to another log
	recs   []sarama.Record
	ptrs   []*sarama.Record

	backlog
}

// backlog has the records on their way into the log.
type backlog struct {
	mu         sync.Mutex
	queue      []entry // from head on
	head       int
	batch      []entry // in flight
	bytes      int     // of queue and batch
	appended   uint64  // records taken by Append
	finished   uint64  // of these, those whose done has returned
	lastAppend time.Time
	running    bool
	err        error         // why the writer has ended
	changed    chan struct{} // closed at the next change; nil while none waits
	work       chan struct{} // tells Run that something is queued
}

// entry is a queued record.
type entry struct {
	rec    Record
	size   int
	urgent bool
	done   Done
}

// Done receives the outcome of a record: see Append.
type Done func(offset int64, at time.Time, err error)

// ack is the offset of an appended batch.
type ack struct {
	offset int64 // of its first record
	at     time.Time
}

// NewWriter returns the owner's writer to a topic-partition. It sends nothing before Fence or Run.
// A writer that has ended cannot be used again: take the partition over again.
func (id *Identity) NewWriter(topic string, partition int32) *Writer {
	return &Writer{
		id: id, topic: topic, partition: partition,
		slot: make(chan struct{}, 1), backlog: backlog{work: make(chan struct{}, 1)},
	}
}

// Fence appends a fence record and returns its offset. From then on no older owner can append here.
// A takeover calls it first, so that recovery can stop at that offset. Without it, the writer
// fences before its first record. An error ends the writer, because the record may or may not be in
// the log.
func (w *Writer) Fence(ctx context.Context) (offset int64, err error) {
	offset, _, err = w.FenceAt(ctx)
	return offset, err
}

// FenceAt is Fence that also returns the broker's time; zero if the topic uses the producer's.
func (w *Writer) FenceAt(ctx context.Context) (offset int64, at time.Time, err error) {
	if err := w.take(ctx); err != nil {
		return 0, at, err
	}
	defer w.release()
	if err := w.Err(); err != nil {
		return 0, at, err
	}
	a, err := w.send(ctx, nil, w.id.cfg.Urgent)
	if err != nil {
		return 0, at, w.end(err)
	}
	return a.offset, a.at, nil
}

// Run sends what is appended until ctx ends or the writer fails, and returns the cause. Records not
// acknowledged by then receive that error too; it is unknown whether they are in the log. A writer
// runs once.
func (w *Writer) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.running {
		w.mu.Unlock()
		return errors.New("fenced: the writer has run already")
	}
	w.running = true
	w.mu.Unlock()

	heartbeat := time.NewTimer(w.untilHeartbeat())
	defer heartbeat.Stop()
	for {
		if err := w.drain(ctx); err != nil {
			return w.end(err)
		}
		heartbeat.Reset(w.untilHeartbeat())
		select {
		case <-w.work:
		case <-heartbeat.C:
		case <-w.id.ended:
		case <-ctx.Done():
		}
	}
}

// drain sends batch after batch until nothing is queued, and a heartbeat if one is due.
func (w *Writer) drain(ctx context.Context) error {
	for {
		if err := w.take(ctx); err != nil {
			return err
		}
		more, err := w.sendNext(ctx)
		w.release()
		if err != nil || !more {
			return err
		}
	}
}

// sendNext returns false if there was nothing to send.
func (w *Writer) sendNext(ctx context.Context) (bool, error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if _, err := w.id.current(); err != nil {
		return false, err
	}
	batch, urgent, err := w.nextBatch(w.id.cfg.BatchBytes)
	if err != nil {
		return false, err
	}
	if len(batch) == 0 && w.untilHeartbeat() > 0 {
		return false, nil
	}
	link := w.id.cfg.Bulk
	if urgent || len(batch) == 0 {
		link = w.id.cfg.Urgent
	}
	a, err := w.send(ctx, batch, link)
	w.finish(batch, a, err)
	return true, err
}

// untilHeartbeat is the rest of HeartbeatEvery. Brokers have nothing to forget about a writer that
// never appended.
func (w *Writer) untilHeartbeat() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lastAppend.IsZero() {
		return w.id.cfg.HeartbeatEvery
	}
	return w.id.cfg.HeartbeatEvery - elapsed(w.lastAppend)
}

// Err is why the writer has ended; nil while it has not.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *Writer) take(ctx context.Context) error {
	select {
	case w.slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *Writer) release() { <-w.slot }
