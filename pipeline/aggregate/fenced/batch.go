package fenced

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// produceVersion is the oldest version with reasons beside the error codes.
const produceVersion = 8

// silentBeats is after how many missed heartbeats a writer assumes that it was replaced. A broker
// that has forgotten the producer id no longer knows who fenced it, nor which batch it has already.
// A batch that is sent again after a lost answer would then be in the log twice.
const silentBeats = 12

// send appends a batch, preceded by a fence record if the stamp is new; an empty batch is a fence
// record alone. It returns when the batch is acknowledged, or when it never will be. After an error
// the sequence is unknown, and the writer must not send again. The caller holds the slot.
func (w *Writer) send(ctx context.Context, batch []entry, link *Link) (ack, error) {
	for {
		if err := w.id.batches.Acquire(ctx, 1); err != nil {
			return ack{}, context.Cause(ctx)
		}
		used, full, a, err := w.sendOnce(ctx, batch, link)
		w.id.batches.Release(1)
		if !full {
			w.id.endIfFenced(err)
			return a, err
		}
		if err := w.id.refreshFrom(ctx, used); err != nil {
			return ack{}, err
		}
	}
}

// sendOnce reports full, and sends nothing, if the stamp's sequence has no room left.
func (w *Writer) sendOnce(ctx context.Context, batch []entry, link *Link) (used stamp, full bool, a ack, err error) {
	s, err := w.id.current()
	if err != nil {
		return s, false, ack{}, err
	}
	if s != w.stamp {
		w.stamp, w.seq, w.fenced = s, 0, false
	}
	// 1 is the fence record's. A new epoch would not make room for a batch that is too long.
	if w.seq > 1 && int(w.seq)+max(1, len(batch)) > int(w.id.cfg.MaxSequence) {
		return s, true, ack{}, nil
	}
	if !w.fenced || len(batch) == 0 {
		if a, err = w.appendFence(ctx, s); err != nil || len(batch) == 0 {
			return s, false, a, err
		}
	}
	a, err = w.produce(ctx, w.encode(batch), link)
	return s, false, a, err
}

func (w *Writer) appendFence(ctx context.Context, s stamp) (ack, error) {
	rec, err := fenceRecord(w.id.cfg.TransactionalID, s, time.Now())
	if err != nil {
		return ack{}, err
	}
	a, err := w.produce(ctx, w.encode([]entry{{rec: rec, size: rec.size()}}), w.id.cfg.Urgent)
	w.fenced = w.fenced || err == nil
	return a, err
}

// encode fills the writer's one batch. sarama compresses it when it is first sent and keeps the
// result, so that every attempt sends the same bytes.
func (w *Writer) encode(batch []entry) *sarama.RecordBatch {
	w.recs, w.ptrs = w.recs[:0], w.ptrs[:0]
	for i := range batch {
		r := &batch[i].rec
		rec := sarama.Record{Key: r.Key, Value: r.Value, OffsetDelta: int64(i)}
		for h := range r.Headers {
			rec.Headers = append(rec.Headers, &r.Headers[h])
		}
		w.recs = append(w.recs, rec)
	}
	for i := range w.recs {
		w.ptrs = append(w.ptrs, &w.recs[i])
	}
	now := time.Now()
	return &sarama.RecordBatch{
		Version: 2, Codec: w.id.cfg.Codec, CompressionLevel: sarama.CompressionLevelDefault,
		ProducerID: w.stamp.pid, ProducerEpoch: w.stamp.epoch, FirstSequence: w.seq,
		FirstTimestamp: now, MaxTimestamp: now, LastOffsetDelta: int32(len(batch) - 1), Records: w.ptrs,
	}
}

// produce sends the same batch, with the same sequence, until it is acknowledged.
func (w *Writer) produce(ctx context.Context, b *sarama.RecordBatch, link *Link) (ack, error) {
	pause := newPause()
	for {
		a, err := w.attempt(ctx, b, link)
		w.slow = errors.Is(err, sarama.ErrRequestTimedOut) || errors.Is(err, sarama.ErrNotEnoughReplicasAfterAppend)
		if err == nil {
			err = w.acknowledged(a, len(b.Records))
		}
		if err == nil {
			return a, nil
		}
		if ctx.Err() == nil {
			w.id.cfg.OnError(err)
		}
		if final(err) || !pause.Wait(ctx) {
			return ack{}, w.explain(ended(ctx, err))
		}
		if lasting(pause) && w.id.mayWarn() {
			w.id.cfg.Log.Warn("Kafka has not acknowledged a record; retrying", "topic", w.topic, "target_partition", w.partition, "error", err)
		}
		// The next attempt reports what it does not find.
		_ = link.refreshMetadata(ctx, w.topic)
	}
}

func (w *Writer) explain(err error) error {
	return fmt.Errorf("append to %s/%d as producer %d epoch %d: %w", w.topic, w.partition, w.stamp.pid, w.stamp.epoch, err)
}

// attempt sends a batch once. After ctx it waits only until sarama has read the records' bytes, which sarama
// bounds by its write timeout, and not for the answer.
func (w *Writer) attempt(ctx context.Context, b *sarama.RecordBatch, link *Link) (ack, error) {
	n, err := link.leader(ctx, w.topic, w.partition)
	if err != nil {
		return ack{}, err
	}
	size, _ := w.size()
	resp, err := n.do(ctx, &job{
		topic: w.topic, partition: w.partition, batch: b, size: size, alone: w.slow,
		timeout: w.id.cfg.RequestTimeout,
		// Right before sending: an owner that is suspended after this wakes up with a connection that
		// the broker has closed.
		check: w.checkSilence,
	})
	if err != nil {
		return ack{}, err
	}
	return w.read(resp)
}

func (w *Writer) read(resp *sarama.ProduceResponse) (ack, error) {
	block := resp.GetBlock(w.topic, w.partition)
	if block == nil {
		return ack{}, sarama.ErrIncompleteResponse
	}
	err := answer(block.Err, retriableProduce)
	switch {
	case err == nil && block.Offset < 0, block.Err == sarama.ErrDuplicateSequenceNumber:
		// In the log, at an unknown offset. The next owner reads it there.
		return ack{}, fmt.Errorf("%w: the batch is in the log, at an unknown offset", errAnswer)
	case err == nil:
		return ack{block.Offset, block.Timestamp}, nil
	case block.Err == sarama.ErrMessageSizeTooLarge || block.Err == sarama.ErrMessageSetSizeTooLarge:
		return ack{}, w.tooLarge(err)
	case block.ErrorMessage != nil:
		return ack{}, fmt.Errorf("%w: %s", err, *block.ErrorMessage)
	}
	return ack{}, err
}

// acknowledged advances the sequence after a batch of n records.
func (w *Writer) acknowledged(a ack, n int) error {
	if a.offset < w.lowest {
		return fmt.Errorf("%w: appended at offset %d after %d, so the log was truncated or the topic created anew",
			errAnswer, a.offset, w.lowest-1)
	}
	w.seq += int32(n)
	w.lowest = a.offset + int64(n)
	now := time.Now()
	w.mu.Lock()
	w.lastAppend = now
	w.mu.Unlock()
	w.id.mu.Lock()
	w.id.heard = now
	w.id.mu.Unlock()
	return nil
}

// checkSilence returns an error if no broker has confirmed the ownership for too long: to this
// writer or, if it has never appended, to any of the identity's.
func (w *Writer) checkSilence() error {
	w.mu.Lock()
	last := w.lastAppend
	w.mu.Unlock()
	w.id.mu.Lock()
	since, heard := w.id.since, w.id.heard
	w.id.mu.Unlock()
	silent := elapsed(since)
	if last.IsZero() {
		last = heard
	}
	if !last.IsZero() {
		silent = min(silent, elapsed(last))
	}
	if silent > silentBeats*w.id.cfg.HeartbeatEvery {
		return fmt.Errorf("%w, perhaps: nothing was appended for %v", ErrFenced, silent.Round(time.Second))
	}
	return nil
}

// size is that of the batch before compression, without headers, and of its largest record.
func (w *Writer) size() (sum, largest int) {
	for i := range w.recs {
		n := recordOverhead + len(w.recs[i].Key) + len(w.recs[i].Value)
		sum, largest = sum+n, max(largest, n)
	}
	return sum, largest
}

func (w *Writer) tooLarge(err error) error {
	sum, largest := w.size()
	return fmt.Errorf("%w: a batch of %d records with %d bytes before compression, the largest record %d: raise the topic's max.message.bytes",
		err, len(w.recs), sum, largest)
}
