package kafkalog

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// made is a record batch that a test makes. The zero value of a field is what most batches have.
type made struct {
	first      int64
	attributes int16 // with the codec
	base, max  int64
	producer   int64
	gap        int // between its records' offsets
	lastDelta  int32
	count      int // other than there are
	records    []kmsg.Record
}

// bytes is the batch on the wire.
func (m made) bytes(tb testing.TB) []byte {
	tb.Helper()
	var raw []byte
	for i, r := range m.records {
		r.OffsetDelta = int32(i * (1 + m.gap))
		m.lastDelta = max(m.lastDelta, r.OffsetDelta)
		body := r.AppendTo(nil)[1:] // without its length, which is 0 yet
		raw = append(binary.AppendVarint(raw, int64(len(body))), body...)
	}
	if m.count == 0 {
		m.count = len(m.records)
	}
	b := kmsg.RecordBatch{
		FirstOffset: m.first, Magic: 2, Attributes: m.attributes, LastOffsetDelta: m.lastDelta,
		FirstTimestamp: m.base, MaxTimestamp: m.max, ProducerID: m.producer, FirstSequence: -1,
		NumRecords: int32(m.count), Records: pack(tb, int(m.attributes)&codecMask, raw),
	}
	return sign(b.AppendTo(nil))
}

// sign writes a batch's length and checksum.
func sign(wire []byte) []byte {
	binary.BigEndian.PutUint32(wire[atLength:], uint32(len(wire)-lengthFrom))
	binary.BigEndian.PutUint32(wire[atCRC:], crc32.Checksum(wire[atAttributes:], castagnoli))
	return wire
}

// pack compresses as producers do.
func pack(tb testing.TB, codec int, raw []byte) []byte {
	tb.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	switch codec {
	case codecNone:
		return raw
	case codecGzip:
		w = gzip.NewWriter(&out)
	case codecSnappy:
		return snappy.Encode(nil, raw)
	case codecLZ4:
		w = lz4.NewWriter(&out)
	case codecZstd:
		z, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
		if err != nil {
			tb.Fatal(err)
		}
		w = z
	default:
		return raw
	}
	if _, err := w.Write(raw); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// packXerial is snappy in Java's framing, in several blocks.
func packXerial(raw []byte) (out []byte) {
	out = xerial.Encode(nil, raw[:len(raw)/2])
	return xerial.Encode(out, raw[len(raw)/2:])
}

// chunkOf makes the chunk of a fetch from an offset.
func chunkOf(raw []byte, from int64) *Chunk {
	return &Chunk{raw: raw, from: from, unpack: &unpacker{most: 64 << 20}, committed: true}
}

// all reads a chunk to its end.
func all(c *Chunk) (records []Record, err error) {
	for {
		b, ok, err := c.Next()
		if !ok || err != nil {
			return records, err
		}
		for {
			var rec Record
			if ok, err = b.Next(&rec); err != nil {
				return records, err
			}
			if !ok {
				break
			}
			records = append(records, rec)
		}
	}
}

// list is a record's headers.
func list(h Headers) (out []kmsg.Header) {
	for {
		key, value, ok := h.Next()
		if !ok {
			return out
		}
		out = append(out, kmsg.Header{Key: string(key), Value: value})
	}
}

func value(s string) kmsg.Record { return kmsg.Record{Value: []byte(s)} }

func offsets(records []Record) (out []int64) {
	for _, r := range records {
		out = append(out, r.Offset)
	}
	return out
}

func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
