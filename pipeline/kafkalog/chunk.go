package kafkalog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

// Chunk is the result of one fetch of a partition: batches that are checked and decompressed one after the other, by
// whoever reads them. The zero value has none.
type Chunk struct {
	End int64 // the partition's end: its high watermark

	place     int64 // see Place
	raw       []byte
	held      int   // see Held
	from      int64 // the offset that was asked for
	unpack    *unpacker
	committed bool // leave aborted transactions out

	err     error                                                // after which there is no more
	aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction // to come, by their first offsets
	ongoing []int64                                              // producers of those that have begun
}

// Place is the offset behind all that Next has gone through: what it returned, and what it passed
// over since nobody is to see it, such as the markers of transactions and those that were aborted.
func (c *Chunk) Place() int64 { return c.place }

// Held returns the chunk's memory, also when it is read: see Reader.Keep.
func (c *Chunk) Held() int { return c.held }

// Rest counts the bytes of the chunk that Next has not gone through.
func (c *Chunk) Rest() int { return len(c.raw) }

// Most is the most that the next batch can take beside the chunk's memory, whatever Next passes over until
// it comes to one.
func (c *Chunk) Most() (most int) {
	for rest := c.raw; ; {
		e, further, _, err := splitEntry(rest)
		if err != nil || e == nil {
			return most
		}
		most, rest = max(most, c.mostOf(e)), further
		if e.legacy() || e.last() >= c.from && e.attributes()&(attrControl|attrTransactional) == 0 && e.count() > 0 {
			return most
		}
	}
}

// mostOf is Most for one entry.
func (c *Chunk) mostOf(e entry) int {
	switch {
	case e.legacy():
		return 2 * c.unpack.most // decompressed, and an object for each message
	case e.attributes()&attrControl != 0 || e.last() < c.from:
		return 0
	}
	return c.unpack.atMost(e.attributes()&codecMask, e[batchHeader:])
}

// Next returns the next batch with something in it; false after the last. After an error it
// returns nothing else: what follows a broken batch must not come before it is read. A batch that
// arrived whole and that nobody can read is no such error: it is returned, and its Next says so.
func (c *Chunk) Next() (b Batch, ok bool, err error) {
	for c.err == nil && len(c.raw) > 0 {
		if b, c.err = c.open(); c.err == nil && b.Len() > 0 {
			return b, true, nil
		}
	}
	return Batch{}, false, c.err
}

// open opens the first of the entries that are left. What is to be skipped is an empty batch.
func (c *Chunk) open() (b Batch, err error) {
	e, rest, _, err := splitEntry(c.raw)
	switch {
	case err != nil:
		return Batch{}, err
	case e == nil:
		return Batch{}, fmt.Errorf("%w: %d bytes of one", ErrCorrupt, len(c.raw))
	}
	c.raw = rest
	if err := e.check(); err != nil {
		return Batch{}, err
	}
	switch {
	case e.legacy():
		b, err = c.legacy(e)
	case c.skip(e) || e.last() < c.from:
	default:
		b, err = e.open(c.unpack, c.from)
	}
	if err == nil {
		c.place = max(c.place, e.last()+1)
	}
	return b, err
}

// skip reports whether the batch is none of its topic's events: a marker of a transaction's end,
// or part of a transaction that was aborted.
func (c *Chunk) skip(e entry) bool {
	for len(c.aborted) > 0 && c.aborted[0].FirstOffset <= e.last() {
		c.ongoing = append(c.ongoing, c.aborted[0].ProducerID)
		c.aborted = c.aborted[1:]
	}
	attributes, producer := e.attributes(), e.producer()
	if attributes&attrControl != 0 {
		if i := slices.Index(c.ongoing, producer); i >= 0 && isAbort(e) {
			c.ongoing = slices.Delete(c.ongoing, i, i+1)
		}
		return true
	}
	return c.committed && attributes&attrTransactional != 0 && slices.Contains(c.ongoing, producer)
}

// isAbort reports whether a control batch ends a transaction that was aborted: its one record's
// key is a version and a type.
func isAbort(e entry) bool {
	var rec Record
	if e.attributes()&codecMask != codecNone {
		return false
	}
	_, err := rec.Decode(e[batchHeader:], &record.Batch{Past: -1, Last: math.MaxInt64})
	return err == nil && len(rec.Key) >= 4 && binary.BigEndian.Uint16(rec.Key[2:]) == 0
}

// plainBytes is about what a record takes that is decoded, beside its key and value.
const plainBytes = 256

// legacy reads a message of the formats before Kafka 0.11, or several that are compressed in one.
// They are rare, in old logs, and read without haste.
func (c *Chunk) legacy(e entry) (b Batch, err error) {
	in := kmsg.NewFetchResponseTopicPartition()
	in.RecordBatches = e
	out, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: c.from}, &in, c.unpack, nil)
	if errors.Is(out.Err, ErrTooLarge) {
		return unreadable(e, c.from, out.Err), nil
	}
	if out.Err != nil {
		return Batch{}, fmt.Errorf("read a message of an old format at offset %d: %w", e.first(), out.Err)
	}
	appendTime := e[atMagic] == 1 && e[atMagic+1]&attrAppendTime != 0
	for _, r := range out.Records {
		at := noTime
		switch {
		case appendTime:
			at = batchTime(e[atMagic+2:])
		case !r.Timestamp.Before(time.UnixMilli(0)):
			at = record.Clamp(r.Timestamp.UnixMilli())
		}
		b.plain = append(b.plain, Record{Offset: r.Offset, Timestamp: at, Key: r.Key, Value: r.Value})
		b.own += plainBytes + len(r.Key) + len(r.Value)
	}
	return b, nil
}

// extent is the range of a log's raw bytes.
type extent struct {
	whole int   // bytes that are whole batches
	next  int64 // the offset behind them
	epoch int32 // of the leader that took the last of them; noEpoch when it does not say
	cut   int   // how many bytes the batch has that is cut off; 0 if there is none, or raw does not tell
}

// span looks how far raw goes. It believes what the batches' heads say.
func span(raw []byte, from int64) (x extent, err error) {
	x.next, x.epoch = from, noEpoch
	for rest := raw; len(rest) > 0; {
		e, further, size, err := splitEntry(rest)
		if err != nil {
			return x, err
		}
		if e == nil {
			x.cut = size
			return x, nil
		}
		x.whole += len(e)
		x.next, x.epoch = max(x.next, e.last()+1), e.epoch()
		rest = further
	}
	return x, nil
}

// audit returns an error when one of the batches that raw begins with is corrupt.
func audit(raw []byte) error {
	for len(raw) > 0 {
		e, rest, _, err := splitEntry(raw)
		if err != nil || e == nil {
			return err
		}
		if err := e.check(); err != nil {
			return err
		}
		raw = rest
	}
	return nil
}
