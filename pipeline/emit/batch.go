package emit

import (
	"bytes"
	"io"
	"sync"

	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/event"
)

// What a record and a batch add on the wire to the key and the value, rounded up: the fixed
// fields, and the three headers.
const (
	recordOverhead = 80
	traceOverhead  = 16 // of the header with a trace context, beside its value
	batchOverhead  = 128
)

// record is one record's place in its batch's data, and its place in the partition's order.
type record struct {
	start, value, end uint32 // the key is data[start:value], the value data[value:end]
	events            uint16
	traced            bool   // a traceparent follows the value, at data[end:]
	sequence          uint64 // the position that was given; else 0 until the batch is first sent
}

// batch is a run of records of one partition. It belongs to one goroutine, or is guarded by
// its lane's lock. From the first attempt to send it on its bytes never change.
type batch struct {
	data    []byte
	records []record
	events  int
	traced  int   // records
	bytes   int64 // as reserved from the queue's budget
	pinned  bool  // an attempt was abandoned: the transport may read data for a while yet
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// release gives the batch's memory back. The caller forgets b.
func (b *batch) release() {
	if b.pinned {
		return
	}
	*b = batch{data: b.data[:0], records: b.records[:0]}
	batches.Put(b)
}

// room reports whether an event of these sizes still fits.
func (b *batch) room(key, value, perRecord int) bool {
	if len(b.records) == 0 {
		return true
	}
	last := &b.records[len(b.records)-1]
	joins := perRecord > 1 && int(last.events) < perRecord && !last.traced
	if !joins && len(b.records) >= maxBatchRecords {
		return false
	}
	return b.wireBytes()+key+value+recordOverhead <= maxBatchBytes
}

func (b *batch) wireBytes() int {
	return batchOverhead + len(b.data) + recordOverhead*len(b.records) + traceOverhead*b.traced
}

// add appends one event: a record of its own, or the next item of the last record's array. A position
// goes with a record of its own, and so does a trace context, which may be empty.
func (b *batch) add(i *item, perRecord int) {
	b.events++
	b.bytes += i.cost
	if perRecord == 1 || len(i.trace) > 0 {
		b.seal(perRecord)
		start := uint32(len(b.data))
		b.data = append(append(b.data, i.key...), i.value...)
		mid := start + uint32(len(i.key))
		b.records = append(b.records, record{start: start, value: mid, end: uint32(len(b.data)), events: 1, traced: len(i.trace) > 0, sequence: i.position})
		if len(i.trace) > 0 {
			b.data = append(b.data, i.trace...)
			b.traced++
		}
		return
	}
	value := i.value
	last := len(b.records) - 1
	if last < 0 || int(b.records[last].events) == perRecord || b.records[last].traced {
		b.seal(perRecord)
		start := uint32(len(b.data))
		b.data = append(b.data, '[')
		b.records = append(b.records, record{start: start, value: start})
		last++
	} else {
		b.data = append(b.data, ',')
	}
	b.data = append(b.data, value...)
	r := &b.records[last]
	r.events++
	r.end = uint32(len(b.data))
}

// seal ends the last record's array. It is called once for each.
func (b *batch) seal(perRecord int) {
	if perRecord > 1 && len(b.records) > 0 && !b.records[len(b.records)-1].traced {
		b.data = append(b.data, ']')
		b.records[len(b.records)-1].end++
	}
}

// traceOf is the trace context of a record; empty for none.
func (b *batch) traceOf(r *record) []byte {
	if !r.traced {
		return nil
	}
	return b.data[r.end : r.end+uint32(traceBytes)]
}

// divide copies b's records into two batches, those that first accepts and the others, in
// order and with their sequences, and releases b.
func (b *batch) divide(first func(i int) bool) (yes, no *batch) {
	yes, no = batches.Get().(*batch), batches.Get().(*batch)
	for i, r := range b.records {
		to := no
		if first(i) {
			to = yes
		}
		start := uint32(len(to.data))
		to.data = append(append(to.data, b.data[r.start:r.end]...), b.traceOf(&r)...)
		if r.traced {
			to.traced++
		}
		r.start, r.value, r.end = start, start+r.value-r.start, start+r.end-r.start
		to.records = append(to.records, r)
		to.events += int(r.events)
	}
	yes.bytes = b.bytes * int64(yes.events) / int64(b.events)
	no.bytes = b.bytes - yes.bytes
	b.release()
	return yes, no
}

// reader hands a batch's records to kafka-go, one at a time, in order. Each attempt to send
// gets a reader of its own.
type reader struct {
	batch      *batch
	next       int
	record     kafka.Record
	key, value field
	headers    [4]kafka.Header // the last one only of records that have a trace context
	sequence   [8]byte
	partition  [4]byte
}

// field is a key or a value as kafka-go reads it; kafka.NewBytes would allocate each one.
type field struct{ bytes.Reader }

func (*field) Close() error { return nil }

func newReader(b *batch, instance []byte, partition int32) *reader {
	r := &reader{batch: b}
	r.headers[0] = kafka.Header{Key: event.HeaderInstance, Value: instance}
	r.headers[1] = kafka.Header{Key: event.HeaderSequence}
	r.headers[2] = kafka.Header{Key: event.HeaderPartition, Value: event.AppendPartition(r.partition[:0], partition)}
	r.headers[3] = kafka.Header{Key: event.HeaderTrace}
	return r
}

// ReadRecord implements kafka.RecordReader. The record is valid until the next call.
func (r *reader) ReadRecord() (*kafka.Record, error) {
	if r.next == len(r.batch.records) {
		return nil, io.EOF
	}
	at, data := &r.batch.records[r.next], r.batch.data
	r.next++
	r.headers[1].Value = event.AppendSequence(r.sequence[:0], at.sequence)
	r.value.Reset(data[at.value:at.end])
	r.record = kafka.Record{Value: &r.value, Headers: r.headers[:3]}
	if at.traced {
		r.headers[3].Value = r.batch.traceOf(at)
		r.record.Headers = r.headers[:]
	}
	if at.value > at.start {
		r.key.Reset(data[at.start:at.value])
		r.record.Key = &r.key
	}
	return &r.record, nil
}
