package topiclog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
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
	ctx, cancel := context.WithTimeout(ctx, patience/2)
	defer cancel()
	res, err := p.log.client.Fetch(ctx, &kafka.FetchRequest{
		Topic: p.log.name, Partition: p.partition, Offset: from,
		MinBytes: 1, MaxBytes: fetchBytes, MaxWait: 250 * time.Millisecond,
	})
	if err != nil {
		return chunk{}, err
	}
	c := chunk{next: from}
	if errors.Is(res.Error, kafka.OffsetOutOfRange) {
		return p.deleted(ctx, from)
	}
	if res.Error != nil {
		return chunk{}, res.Error
	}
	if err := c.read(res.Records, p); err != nil {
		return chunk{}, err
	}
	if c.next == from && from < res.HighWatermark {
		// All that the batch had from here on was compacted away, and kafka-go doesn't tell where the
		// batch ends. Broker and offset agree again at some offset soon.
		c.next++
	}
	return c, nil
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

func (c *chunk) read(records kafka.RecordReader, p *lane) error {
	stream, ok := records.(*protocol.RecordStream)
	if !ok {
		return c.readBatch(records, p)
	}
	for _, batch := range stream.Records {
		switch b := batch.(type) {
		case *protocol.ControlBatch: // a transaction marker
			c.next = max(c.next, b.BaseOffset+1)
			continue
		case *protocol.RecordBatch:
			c.next = max(c.next, b.BaseOffset)
		}
		if err := c.readBatch(batch, p); err != nil {
			return err
		}
	}
	return nil
}

// readBatch takes a batch's records. It may begin below the offset that was asked for, and end
// behind the lane.
func (c *chunk) readBatch(records kafka.RecordReader, p *lane) error {
	for {
		r, err := records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read records: %w", err)
		}
		key, keyErr := kafka.ReadAll(r.Key)
		value, valueErr := kafka.ReadAll(r.Value)
		closeBytes(r.Key)
		closeBytes(r.Value)
		if err := errors.Join(keyErr, valueErr); err != nil {
			return fmt.Errorf("read record at offset %d: %w", r.Offset, err)
		}
		if r.Offset < c.next {
			continue
		}
		c.next = r.Offset + 1
		if r.Offset < p.end {
			c.records = append(c.records, &kafka.Message{
				Topic: p.log.name, Partition: p.partition, Offset: r.Offset, Time: r.Time,
				Key: key, Value: value, Headers: r.Headers,
			})
		}
	}
}

func closeBytes(b kafka.Bytes) {
	if b != nil {
		_ = b.Close() // returns pages to a pool; it has nothing to fail
	}
}
