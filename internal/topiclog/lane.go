package topiclog

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
)

const (
	fetchBytes = 2 << 20 // of a partition; a larger batch comes whole

	// patience is how long Kafka may stay silent before the records that it has promised.
	patience = 30 * time.Second
)

// lane is one partition.
type lane struct {
	log       *Log
	partition int
	end       int64 // where it ended at the start, or where To is
	next      int64 // behind what was taken from chunks
	counted   int64 // behind what Done counts
	head      *kafka.Message
	chunk     []*kafka.Message
	ahead     chan chunk // nil: nothing is being fetched
	cancel    context.CancelFunc
}

// chunk is what a fetch brought: the records at offsets from where it was asked to next.
type chunk struct {
	records []*kafka.Message
	next    int64
	err     error
}

// advance makes head the partition's next record; there is none when its end has been reached.
func (p *lane) advance(ctx context.Context) (there bool, err error) {
	for len(p.chunk) == 0 {
		if p.next >= p.end {
			p.count(p.end)
			return false, nil
		}
		p.fetchAhead(ctx)
		var c chunk
		select {
		case c = <-p.ahead:
		case <-ctx.Done():
			return false, ctx.Err()
		}
		p.cancel()
		p.ahead = nil
		if c.err != nil {
			return false, c.err
		}
		p.chunk, p.next = c.records, c.next
		if p.next < p.end {
			p.fetchAhead(ctx)
		}
	}
	p.head = p.chunk[0]
	p.chunk = p.chunk[1:]
	p.count(p.head.Offset + 1)
	return true, nil
}

func (p *lane) count(to int64) {
	p.log.done.Add(to - p.counted)
	p.counted = to
}

// fetchAhead fetches the next chunk, beside the work on this one. It ends with ctx and with stop.
func (p *lane) fetchAhead(ctx context.Context) {
	if p.ahead != nil {
		return
	}
	ctx, p.cancel = context.WithCancel(ctx)
	from, ahead := p.next, make(chan chunk, 1)
	p.ahead = ahead
	go func() { ahead <- p.fetch(ctx, from) }()
}

// stop waits for what is being fetched to end.
func (p *lane) stop() {
	if p.ahead != nil {
		p.cancel()
		<-p.ahead
		p.ahead = nil
	}
}

// fetch tries for as long as Kafka is given. It changes nothing of the lane.
func (p *lane) fetch(ctx context.Context, from int64) chunk {
	deadline := time.Now().Add(patience)
	for {
		c, err := p.attempt(ctx, from)
		switch {
		case err == nil && c.next > from:
			return c
		case ctx.Err() != nil:
			return chunk{err: ctx.Err()}
		case time.Now().After(deadline):
			if err == nil {
				err = errors.New("no record comes, and there is one")
			}
			return chunk{err: fmt.Errorf("read %s/%d at offset %d: %w", p.log.name, p.partition, from, err)}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (p *lane) attempt(ctx context.Context, from int64) (chunk, error) {
	leader, err := p.log.reader.Leader(p.log.name, int32(p.partition))
	if err != nil {
		return chunk{}, err
	}
	req := &sarama.FetchRequest{MinBytes: 1, MaxBytes: fetchBytes, MaxWaitTime: 250, Version: 4, Isolation: sarama.ReadCommitted}
	req.AddBlock(p.log.name, int32(p.partition), from, fetchBytes, -1)
	res, err := leader.Fetch(req)
	if err != nil {
		_ = leader.Close() // a broken connection is opened again
		return chunk{}, errors.Join(err, p.log.reader.RefreshMetadata(p.log.name))
	}
	block := res.GetBlock(p.log.name, int32(p.partition))
	switch {
	case block == nil:
		return chunk{}, sarama.ErrIncompleteResponse
	case errors.Is(block.Err, sarama.ErrOffsetOutOfRange):
		return p.deleted(ctx, from)
	case !errors.Is(block.Err, sarama.ErrNoError):
		return chunk{}, errors.Join(block.Err, p.log.reader.RefreshMetadata(p.log.name))
	}
	c := chunk{next: from}
	aborted := newAborted(block.AbortedTransactions)
	for _, records := range block.RecordsSet {
		if records.RecordBatch == nil {
			return chunk{}, fmt.Errorf("messages of a format before Kafka 0.11")
		}
		c.read(records.RecordBatch, p, aborted.has(records.RecordBatch))
	}
	return c, ctx.Err()
}

// deleted goes on where the log begins now, when retention was faster than we.
func (p *lane) deleted(ctx context.Context, from int64) (chunk, error) {
	first, err := p.log.offsets(ctx, []int{p.partition}, kafka.FirstOffset)
	if err != nil {
		return chunk{}, err
	}
	if first[p.partition] <= from {
		return chunk{}, kafka.OffsetOutOfRange
	}
	return chunk{next: first[p.partition]}, nil
}

// aborted are the transactions that were aborted within what a fetch brought: nobody counts their records.
type aborted struct {
	coming []*sarama.AbortedTransaction // by their first offsets
	begun  map[int64]bool               // by producer
}

func newAborted(all []*sarama.AbortedTransaction) *aborted {
	slices.SortFunc(all, func(a, b *sarama.AbortedTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	return &aborted{all, map[int64]bool{}}
}

// has reports whether the next batch is part of one.
func (a *aborted) has(b *sarama.RecordBatch) bool {
	for len(a.coming) > 0 && a.coming[0].FirstOffset <= b.FirstOffset+int64(b.LastOffsetDelta) {
		a.begun[a.coming[0].ProducerID] = true
		a.coming = a.coming[1:]
	}
	if b.Control {
		// A marker's key is a version and a type, of which 0 is an abort.
		if len(b.Records) > 0 && len(b.Records[0].Key) >= 4 && binary.BigEndian.Uint16(b.Records[0].Key[2:]) == 0 {
			delete(a.begun, b.ProducerID)
		}
		return false
	}
	return b.IsTransactional && a.begun[b.ProducerID]
}

// read takes a batch's records, none if it was aborted. It may begin below the offset that was asked for, and
// end behind the lane; what compaction has left of it may end before it does.
func (c *chunk) read(b *sarama.RecordBatch, p *lane, aborted bool) {
	for _, r := range b.Records {
		offset := b.FirstOffset + r.OffsetDelta
		if b.Control || aborted || offset < c.next || offset >= p.end {
			continue
		}
		// As the aggregator's consumer has it: kafka-go gives the producer's time, also where the topic
		// has the broker's.
		at := b.FirstTimestamp.Add(r.TimestampDelta)
		if b.LogAppendTime {
			at = b.MaxTimestamp
		}
		m := &kafka.Message{Topic: p.log.name, Partition: p.partition, Offset: offset, Time: at, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, kafka.Header{Key: string(h.Key), Value: h.Value})
		}
		c.records = append(c.records, m)
	}
	if !b.PartialTrailingRecord {
		c.next = max(c.next, b.FirstOffset+int64(b.LastOffsetDelta)+1)
	} else if n := len(c.records); n > 0 {
		c.next = max(c.next, c.records[n-1].Offset+1)
	}
}
