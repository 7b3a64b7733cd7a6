package kafkalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// waitBesideFull bounds a broker's wait for partitions that have nothing, while another one is not asked for
	// because enough of it is here: it may be needed soon.
	waitBesideFull = 10 * time.Millisecond

	// leastBytes is the least that is asked for where answers don't come in time.
	leastBytes = 64 << 10
)

// question is the content of a request.
type question struct {
	reader *Reader
	from   int64
}

// serve reads from one broker until ctx ends.
func (f *Fetcher) serve(ctx context.Context, client *kgo.Client, n *node) {
	for {
		req, asked, size := f.ask(n)
		if len(asked) == 0 {
			select {
			case <-n.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		answer, err := client.Broker(int(n.broker)).Request(ctx, req)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			resp := answer.(*kmsg.FetchResponse)
			if err = kerr.ErrorForCode(resp.ErrorCode); err == nil {
				f.take(n, asked, resp, size)
				continue
			}
		}
		f.fell(n, asked, err, size)
	}
}

// ask writes the next request to a broker. Brokers fill a response from its first partition on, so
// every reader comes first in its turn. size is what the answer may bring.
func (f *Fetcher) ask(n *node) (req *kmsg.FetchRequest, asked []question, size int64) {
	req = kmsg.NewPtrFetchRequest()
	req.MinBytes, req.MaxBytes = f.cfg.MinBytes, f.cfg.ResponseBytes
	req.SessionEpoch = -1 // no session: it would save little, and is one more thing to go wrong
	req.IsolationLevel = f.cfg.isolation()
	wait := f.cfg.MaxWait
	f.mu.Lock()
	defer f.mu.Unlock()
	n.turn++
	for i := range f.readers {
		r := f.readers[(i+n.turn)%len(f.readers)]
		if r.spot() != n.spot || r.err != nil {
			continue
		}
		most := f.sizeFor(r)
		if r.skipped = f.full(r) || !f.fits(size, most); r.skipped {
			wait = min(wait, waitBesideFull)
			continue
		}
		size += int64(most)
		asked = append(asked, question{r, r.next})
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = r.partition, r.next, most, r.epoch
		t := requestTopic(req, r)
		t.Partitions = append(t.Partitions, p)
	}
	req.MaxWaitMillis = int32(wait.Milliseconds())
	f.holding.asked += size
	return req, asked, size
}

func requestTopic(req *kmsg.FetchRequest, r *Reader) *kmsg.FetchRequestTopic {
	for i := range req.Topics {
		if t := &req.Topics[i]; t.Topic == r.topic && t.TopicID == r.id {
			return t
		}
	}
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = r.topic, r.id
	req.Topics = append(req.Topics, t)
	return &req.Topics[len(req.Topics)-1]
}

// fell notes that a broker did not answer, or not with a fetch.
func (f *Fetcher) fell(n *node, asked []question, why error, size int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers(size)
	for _, q := range asked {
		q.reader.size = max(q.reader.size/4, min(leastBytes, f.cfg.PartitionBytes)) // it may be too much at once
		f.lose(q.reader, fmt.Errorf("read from broker %d: %w", n.broker, why))
	}
}

// take gives an answer's parts to the readers.
func (f *Fetcher) take(n *node, asked []question, resp *kmsg.FetchResponse, size int64) {
	all := bytesOf(resp)
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.answers(size) // when what has come is held
	for _, q := range asked {
		r := q.reader
		if r.err != nil {
			continue
		}
		p := part(resp, r)
		if p == nil {
			f.lose(r, fmt.Errorf("read from broker %d: its answer lacks the partition", n.broker))
			continue
		}
		switch err := kerr.ErrorForCode(p.ErrorCode); {
		case err == nil:
			f.give(r, q.from, p, all)
		case errors.Is(err, kerr.OffsetOutOfRange):
			r.fail(fmt.Errorf("%w: %d of %s/%d", ErrOutOfRange, q.from, r.topic, r.partition))
		default:
			f.lose(r, fmt.Errorf("read from broker %d: %w", n.broker, err))
		}
	}
}

// part finds a reader's partition in an answer. Answers name topics by id or by name.
func part(resp *kmsg.FetchResponse, r *Reader) *kmsg.FetchResponseTopicPartition {
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic != r.topic && (t.Topic != "" || t.TopicID != r.id) {
			continue
		}
		for j := range t.Partitions {
			if t.Partitions[j].Partition == r.partition {
				return &t.Partitions[j]
			}
		}
	}
	return nil
}

// give puts what has come into the reader's queue, as a part of so many bytes. The fetcher is locked.
func (f *Fetcher) give(r *Reader, from int64, p *kmsg.FetchResponseTopicPartition, all int) {
	raw := p.RecordBatches
	has, err := span(raw, from)
	if err == nil && has.whole > 0 && has.next <= from {
		err = audit(raw[:has.whole]) // else it would be asked for again and again
	}
	switch {
	case err != nil:
		r.fail(fmt.Errorf("read %s/%d from %d: %w", r.topic, r.partition, from, err))
		return
	case has.whole == 0 && len(raw) > 0:
		f.grow(r, has.cut)
		return
	case has.whole > 0 && has.next <= from:
		f.lose(r, fmt.Errorf("asked for offset %d, got only records below it", from))
		return
	}
	f.answered(r, p.HighWatermark)
	if has.whole == 0 {
		return
	}
	slices.SortFunc(p.AbortedTransactions, func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return cmp.Compare(a.FirstOffset, b.FirstOffset)
	})
	raw, held := apart(raw[:has.whole:has.whole], all)
	r.queue = append(r.queue, Chunk{
		End: p.HighWatermark, raw: raw, held: held, from: from, place: from, unpack: r.unpack,
		committed: !f.cfg.Uncommitted, aborted: p.AbortedTransactions,
	})
	r.queued += has.whole
	f.hold(r, held)
	r.next, r.need = has.next, 0
	if has.epoch != noEpoch {
		r.last = has.epoch
	}
	r.size = int32(min(int64(f.cfg.PartitionBytes), 2*int64(r.size)))
	r.signal()
}

// grow asks for more where not even one batch has come: brokers before Kafka 0.10.1 cut it off.
func (f *Fetcher) grow(r *Reader, need int) {
	if r.size >= f.cfg.LargestBatch || need > int(f.cfg.LargestBatch) {
		r.fail(fmt.Errorf("read %s/%d from %d: a batch of %d bytes, and at most %d are read", r.topic, r.partition, r.next, need, f.cfg.LargestBatch))
		return
	}
	r.size = int32(min(max(2*int64(f.sizeFor(r)), int64(need)), int64(f.cfg.LargestBatch), math.MaxInt32))
	r.need = int(r.size)
}
