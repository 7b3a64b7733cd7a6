package kafkalog

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// readOver reads a chunk to its end, as whoever goes on behind what cannot be read.
func readOver(t *testing.T, c *Chunk) (records []Record, bad []*Unreadable) {
	t.Helper()
	for {
		b, ok, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return records, bad
		}
		for {
			var rec Record
			ok, err := b.Next(&rec)
			if u, is := errors.AsType[*Unreadable](err); is {
				bad = append(bad, u)
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			records = append(records, rec)
		}
	}
}

// A batch that unpacks to more than is allowed is passed over as a range of offsets, and what is
// behind it is read.
func TestABombIsARangeOfOffsets(t *testing.T) {
	const most = 1 << 20
	for name, codec := range codecs {
		if codec == codecNone {
			continue
		}
		bomb := made{first: 2, attributes: codec, records: []kmsg.Record{{Value: make([]byte, most)}, value("small")}}.bytes(t)
		c := chunkOf(slices.Concat(
			made{first: 1, records: []kmsg.Record{value("before")}}.bytes(t), bomb,
			made{first: 4, records: []kmsg.Record{value("behind")}}.bytes(t)), 0)
		c.unpack.most = most
		records, bad := readOver(t, c)
		if got := offsets(records); !slices.Equal(got, []int64{1, 4}) {
			t.Errorf("%s: offsets %v", name, got)
		}
		if len(bad) != 1 || bad[0].First != 2 || bad[0].Last != 3 || bad[0].Bytes != len(bomb) || !errors.Is(bad[0], ErrTooLarge) {
			t.Errorf("%s: %v", name, bad)
		}
		if c.Place() != 5 {
			t.Errorf("%s: the place is %d", name, c.Place())
		}
	}
}

// A window is what a decompressor must remember, not what comes out: producers at zstd's highest
// levels ask for more than a batch may become.
func TestALargeWindowIsNoBomb(t *testing.T) {
	var raw strings.Builder
	w, err := zstd.NewWriter(&raw, zstd.WithWindowSize(128<<20), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	for range 4 { // in parts: the frame does not say how long it will be
		if _, err := w.Write([]byte(strings.Repeat("an event, ", 1000))); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := (&unpacker{most: 1 << 20}).unpack(codecZstd, []byte(raw.String()))
	if err != nil || len(got) != 40_000 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// A batch of nothing says nothing of how well the next one is compressed.
func TestTheBatchAfterAnEmptyOne(t *testing.T) {
	u := &unpacker{most: 1 << 20}
	if got, err := u.unpack(codecZstd, nil); err != nil || len(got) > 0 {
		t.Fatal(got, err)
	}
	want := []byte(strings.Repeat("an event, ", 1000))
	if got, err := u.unpack(codecZstd, pack(t, codecZstd, want)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// A bound of a few bytes is a bound as others.
func TestABoundOfAFewBytes(t *testing.T) {
	for name, codec := range codecs {
		u := &unpacker{most: 20}
		if got, err := u.unpack(int(codec), pack(t, int(codec), []byte("a few"))); err != nil || string(got) != "a few" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// Of a batch whose records contradict each other, the rest is a range of offsets: from the first
// record that cannot be read on.
func TestRecordsThatContradictTheirBatch(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil  func(b *kmsg.RecordBatch, deltas []int32)
		counts int
		first  int64
	}{
		"an offset twice":          {func(_ *kmsg.RecordBatch, d []int32) { d[1] = 0 }, 1, 11},
		"an offset behind the end": {func(_ *kmsg.RecordBatch, d []int32) { d[2] = 3 }, 2, 12},
		"fewer than there are":     {func(b *kmsg.RecordBatch, _ []int32) { b.NumRecords = 2 }, 1, 11},
		"more than there are":      {func(b *kmsg.RecordBatch, _ []int32) { b.NumRecords, b.LastOffsetDelta = 4, 3 }, 3, 13},
	} {
		deltas := []int32{0, 1, 2}
		b := kmsg.RecordBatch{FirstOffset: 10, Magic: 2, LastOffsetDelta: 2, ProducerID: -1, FirstSequence: -1, NumRecords: 3}
		tt.spoil(&b, deltas)
		for _, d := range deltas {
			b.Records = appendRecord(b.Records, kmsg.Record{OffsetDelta: d, Value: []byte("v")})
		}
		behind := b.FirstOffset + int64(b.LastOffsetDelta) + 1
		c := chunkOf(slices.Concat(sign(b.AppendTo(nil)), made{first: behind, records: []kmsg.Record{value("behind")}}.bytes(t)), 0)
		records, bad := readOver(t, c)
		if len(records) != tt.counts+1 || records[tt.counts].Offset != behind {
			t.Errorf("%s: offsets %v", name, offsets(records))
		}
		if len(bad) != 1 || bad[0].First != tt.first || bad[0].Last != behind-1 {
			t.Errorf("%s: %v", name, bad)
		}
	}
}

// What the place is behind: markers, and what was aborted, too.
func TestThePlaceMovesBehindMarkers(t *testing.T) {
	c := chunkOf(slices.Concat(
		made{first: 1, attributes: attrTransactional, producer: 7, records: []kmsg.Record{value("a"), value("b")}}.bytes(t),
		made{first: 3, attributes: attrTransactional | attrControl, producer: 7, records: []kmsg.Record{{Key: []byte{0, 0, 0, 1}}}}.bytes(t)), 0)
	if _, ok, err := c.Next(); !ok || err != nil || c.Place() != 3 {
		t.Fatal(ok, err, c.Place())
	}
	if _, ok, err := c.Next(); ok || err != nil || c.Place() != 4 {
		t.Fatal(ok, err, c.Place())
	}
}

// A batch whose last offset is damaged is called corrupt. It was asked for again and again, and
// nobody told why.
func TestADamagedLastOffsetIsCalledCorrupt(t *testing.T) {
	for name, damage := range map[string]func(wire []byte) []byte{
		"and the checksum tells": func(wire []byte) []byte { wire[atLastDelta] ^= 0x80; return wire },
		"signed":                 func(wire []byte) []byte { wire[atLastDelta] ^= 0x80; return sign(wire) },
		"below its records":      func(wire []byte) []byte { wire[atLastDelta+3] = 0; return sign(wire) },
	} {
		t.Run(name, func(t *testing.T) {
			k := fake(t)
			c := client(t, k.ListenAddrs())
			topic := newTopic(t, c, 1, nil)
			produce(t, c, topic, 0, values(0, 3)...)
			k.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
				k.KeepControl()
				fetch := req.(*kmsg.FetchRequest)
				resp := refuse(fetch, 0)
				for i := range resp.Topics {
					p := &resp.Topics[i].Partitions[0]
					p.HighWatermark = 3
					wire := made{first: 0, records: []kmsg.Record{value("a"), value("b"), value("c")}}.bytes(t)
					p.RecordBatches = damage(wire)
				}
				return resp, nil, true
			})
			r := run(t, Config{Brokers: k.ListenAddrs()}).Read(topic, [16]byte{}, 0, 0)
			defer r.Close()
			if err := corruption(t, r); !errors.Is(err, ErrCorrupt) {
				t.Error(err)
			}
		})
	}
}

// corruption is the error that a reader or one of its chunks ends with.
func corruption(t *testing.T, r *Reader) error {
	t.Helper()
	for {
		c, err := r.Next(t.Context())
		if err != nil {
			return err
		}
		if _, err := all(&c); err != nil {
			return err
		}
	}
}

// appendRecord appends a record as it is in a batch.
func appendRecord(dst []byte, r kmsg.Record) []byte {
	body := r.AppendTo(nil)[1:] // without its length, which is 0 yet
	r.Length = int32(len(body))
	return r.AppendTo(dst)
}
