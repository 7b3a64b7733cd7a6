package kafkalog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var codecs = map[string]int16{"none": codecNone, "gzip": codecGzip, "snappy": codecSnappy, "lz4": codecLZ4, "zstd": codecZstd}

// A record comes out as it went in, whatever it is compressed with.
func TestARecordHasAllThatItWasGiven(t *testing.T) {
	given := []kmsg.Record{
		{Key: []byte("k"), Value: []byte("v"), TimestampDelta64: 5, Headers: []kmsg.Header{{Key: "a", Value: []byte("1")}, {Key: "", Value: nil}, {Key: "a", Value: []byte{}}}},
		{Key: nil, Value: nil},                      // a tombstone
		{Key: []byte{}, Value: []byte{}},            // and what is none
		{Value: bytes.Repeat([]byte("x"), 200_000)}, // more than a block of most codecs
	}
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			records, err := all(chunkOf(made{first: 100, gap: 1, attributes: codec, base: 1_000, max: 2_000, records: given}.bytes(t), 0))
			if err != nil || len(records) != len(given) {
				t.Fatalf("%d records, %v", len(records), err)
			}
			for i, r := range records {
				want := given[i]
				if r.Offset != 100+2*int64(i) || r.Timestamp != 1_000+want.TimestampDelta64 {
					t.Errorf("record %d is at %d, %d ms", i, r.Offset, r.Timestamp)
				}
				if !same(r.Key, want.Key) || !same(r.Value, want.Value) {
					t.Errorf("record %d: %q %.20q", i, r.Key, r.Value)
				}
				if diff := cmp.Diff(want.Headers, list(r.Headers)); diff != "" {
					t.Errorf("record %d's headers: %s", i, diff)
				}
			}
		})
	}
}

// A topic's append time is the time of all records of a batch; a batch without a time has none.
func TestWhatTimeARecordHas(t *testing.T) {
	for _, c := range []struct {
		name string
		made made
		want time.Time
	}{
		{"the producer's", made{base: 1_000, max: 9_000}, time.UnixMilli(1_007)},
		{"the broker's", made{base: 1_000, max: 9_000, attributes: attrAppendTime}, time.UnixMilli(9_000)},
		{"none", made{base: -1, max: -1}, time.Time{}.Add(7 * time.Millisecond)},
		{"none of the broker's", made{base: -1, max: -1, attributes: attrAppendTime}, time.Time{}},
	} {
		c.made.records = []kmsg.Record{{TimestampDelta64: 7}}
		records, err := all(chunkOf(c.made.bytes(t), 0))
		if err != nil || len(records) != 1 || !records[0].Time().Equal(c.want) {
			t.Errorf("%s: %v, %v", c.name, records, err)
		}
	}
}

func TestJavasSnappyComesInBlocks(t *testing.T) {
	raw := []byte(strings.Repeat("all that was said, ", 10_000))
	got, err := (&unpacker{most: 1 << 20}).unpack(codecSnappy, packXerial(raw))
	if err != nil || !bytes.Equal(got, raw) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
}

// The first batch begins below what was asked for; compaction leaves gaps, and batches with nothing
// in them.
func TestOffsetsThatAreNotThere(t *testing.T) {
	wire := slices.Concat(
		made{first: 10, records: []kmsg.Record{value("a"), value("b"), value("c")}}.bytes(t),
		made{first: 20, lastDelta: 9}.bytes(t),
		made{first: 40, gap: 2, lastDelta: 19, records: []kmsg.Record{value("d"), value("e")}}.bytes(t),
	)
	for from, want := range map[int64][]int64{0: {10, 11, 12, 40, 43}, 12: {12, 40, 43}, 13: {40, 43}, 41: {43}, 44: nil, 60: nil} {
		records, err := all(chunkOf(wire, from))
		if err != nil || !slices.Equal(offsets(records), want) {
			t.Errorf("from %d: %v, %v", from, offsets(records), err)
		}
	}
	x, err := span(wire, 12)
	if x.whole != len(wire) || x.next != 60 || x.cut != 0 || err != nil {
		t.Errorf("%+v of %d bytes: %v", x, len(wire), err)
	}
}

// A fetch ends anywhere. What it has of a batch that is cut off is asked for again.
func TestAFetchEndsInTheMidst(t *testing.T) {
	first := made{first: 5, records: []kmsg.Record{value("a"), value("b")}}.bytes(t)
	second := made{first: 7, attributes: codecLZ4, records: []kmsg.Record{value("c")}}.bytes(t)
	wire := slices.Concat(first, second)
	for n := range wire {
		x, err := span(wire[:n], 5)
		whole, next, cut := x.whole, x.next, x.cut
		wantWhole, wantNext, have := 0, int64(5), n
		if n >= len(first) {
			wantWhole, wantNext, have = len(first), 7, n-len(first)
		}
		wantCut := 0
		if have > atMagic {
			wantCut = len(second)
			if wantWhole == 0 {
				wantCut = len(first)
			}
		}
		if whole != wantWhole || next != wantNext || cut != wantCut || err != nil {
			t.Fatalf("%d bytes: %d whole, next %d, %d cut off, %v", n, whole, next, cut, err)
		}
		if _, err := all(chunkOf(wire[:whole], 5)); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
}

// Whatever bit of a batch flips, no other record comes of it. Only where a batch begins and who
// led it is not in its checksum: the broker writes these.
func TestAFlippedBitIsNoticed(t *testing.T) {
	good := made{first: 1, attributes: codecSnappy, records: []kmsg.Record{value("first"), value("second")}}.bytes(t)
	tail := made{first: 3, records: []kmsg.Record{value("third")}}.bytes(t)
	for at := range good {
		if at < atLength || at >= lengthFrom && at < atMagic {
			continue
		}
		for bit := range 8 {
			bad := slices.Concat(good, tail)
			bad[at] ^= 1 << bit
			x, err := span(bad, 0)
			whole := x.whole
			var records []Record
			if err == nil {
				records, err = all(chunkOf(bad[:whole], 0))
			}
			if err == nil && whole > 0 {
				t.Errorf("byte %d, bit %d: %d records", at, bit, len(records))
			}
		}
	}
}

// After a broken batch nothing comes, not even when asked again: what lies behind it would be
// counted ahead of it.
func TestNothingComesAfterABrokenBatch(t *testing.T) {
	good := made{first: 1, records: []kmsg.Record{value("a")}}.bytes(t)
	broken := made{first: 2, attributes: codecGzip, records: []kmsg.Record{value("b")}}.bytes(t)
	broken[len(broken)-1] ^= 1
	c := chunkOf(slices.Concat(good, broken, made{first: 3, records: []kmsg.Record{value("c")}}.bytes(t)), 0)
	if _, ok, err := c.Next(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for range 3 {
		if _, ok, err := c.Next(); ok || err == nil || !strings.Contains(err.Error(), "offset 2") {
			t.Fatal(ok, err)
		}
	}
}

func TestRecordsThatDoNotFit(t *testing.T) {
	record := func(body ...byte) []byte { return append(binary.AppendVarint(nil, int64(len(body))), body...) }
	for name, raw := range map[string][]byte{
		"length beyond the batch":  {0x7e, 0},
		"negative length":          {0x01},
		"length of eleven bytes":   bytes.Repeat([]byte{0xff}, 11),
		"ends in the offset":       record(0, 0),
		"key beyond the record":    record(0, 0, 0, 40, 'k'),
		"value beyond the record":  record(0, 0, 0, 1, 40, 'v'),
		"more headers than bytes":  record(0, 0, 0, 1, 1, 120),
		"header beyond the record": record(0, 0, 0, 1, 1, 2, 40, 'h'),
		"bytes behind the headers": record(0, 0, 0, 1, 1, 0, 0),
		"another record":           slices.Concat(record(0, 0, 0, 1, 1, 0), record(0, 0, 0, 1, 1, 0)),
		"nothing":                  {},
	} {
		wire := made{first: 8, count: 1}.bytes(t)
		wire = sign(append(wire, raw...))
		if records, err := all(chunkOf(wire, 0)); err == nil {
			t.Errorf("%s: %d records", name, len(records))
		}
	}
	for _, count := range []int{-1, 1 << 30} {
		if _, err := all(chunkOf(made{count: count, records: []kmsg.Record{value("a")}}.bytes(t), 0)); err == nil {
			t.Errorf("%d records", count)
		}
	}
}

// A small batch must not become gigabytes.
func TestABatchThatIsABomb(t *testing.T) {
	const most = 8 << 20 // what zstd's encoder takes for its window
	zeros := make([]byte, 4*most)
	for name, codec := range codecs {
		if codec == codecNone {
			continue
		}
		u := &unpacker{most: most}
		got, err := u.unpack(int(codec), pack(t, int(codec), zeros))
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if got, err := u.unpack(int(codec), pack(t, int(codec), zeros[:most])); err != nil || len(got) != most {
			t.Errorf("%s: as much as is allowed: %d bytes, %v", name, len(got), err)
		}
	}
	if _, err := (&unpacker{most: most}).unpack(codecSnappy, packXerial(zeros)); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if _, err := (&unpacker{most: most}).unpack(7, zeros); err == nil {
		t.Error("a codec that there is not")
	}
}

// What a transaction has brought counts when it was committed, and markers never.
func TestTransactions(t *testing.T) {
	const tx = attrTransactional
	marker := func(first, producer int64, kind byte) []byte {
		return made{first: first, producer: producer, attributes: tx | attrControl,
			records: []kmsg.Record{{Key: []byte{0, 0, 0, kind}, Value: []byte{0, 0, 0, 0, 0, 0}}}}.bytes(t)
	}
	const abort, commit = 0, 1
	one := func(first, producer int64, attributes int16) []byte {
		return made{first: first, producer: producer, attributes: attributes, records: []kmsg.Record{value("x")}}.bytes(t)
	}
	wire := slices.Concat(
		one(0, 7, tx), // aborted at 3
		one(1, 8, tx), // committed at 5
		one(2, 7, 0),  // of the same producer, in no transaction
		marker(3, 7, abort),
		one(4, 7, tx), // its next transaction, committed at 6
		marker(5, 8, commit), marker(6, 7, commit),
		one(7, 8, tx|codecLZ4), // aborted, and the marker comes with a later fetch
	)
	c := chunkOf(wire, 0)
	c.aborted = []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 7, FirstOffset: 0}, {ProducerID: 8, FirstOffset: 7}}
	uncommitted := *c
	uncommitted.committed = false
	if records, err := all(c); err != nil || !slices.Equal(offsets(records), []int64{1, 2, 4}) {
		t.Errorf("committed: %v, %v", offsets(records), err)
	}
	if records, err := all(&uncommitted); err != nil || !slices.Equal(offsets(records), []int64{0, 1, 2, 4, 7}) {
		t.Errorf("uncommitted: %v, %v", offsets(records), err)
	}
}

// Logs that are older than Kafka 0.11 have messages of other formats.
func TestMessagesOfOldFormats(t *testing.T) {
	v0 := func(offset int64, attributes int8, value []byte) []byte {
		m := kmsg.MessageV0{Offset: offset, Attributes: attributes, Value: value}
		return signLegacy(m.AppendTo(nil))
	}
	v1 := func(offset int64, attributes int8, at int64, value []byte) []byte {
		m := kmsg.MessageV1{Offset: offset, Magic: 1, Attributes: attributes, Timestamp: at, Key: []byte("k"), Value: value}
		return signLegacy(m.AppendTo(nil))
	}
	inner := slices.Concat(v1(0, 0, 100, []byte("c")), v1(2, 0, 101, []byte("d")))
	wire := slices.Concat(
		v0(0, 0, []byte("a")),
		v1(1, 0, 50, []byte("b")),
		v1(6, codecGzip, 101, pack(t, codecGzip, inner)),                    // at 4 and 6
		v1(9, codecSnappy|attrAppendTime, 777, pack(t, codecSnappy, inner)), // at 7 and 9
		made{first: 10, base: 5, records: []kmsg.Record{value("e")}}.bytes(t),
	)
	x, err := span(wire, 0)
	if x.whole != len(wire) || x.next != 11 || err != nil {
		t.Fatalf("%+v of %d bytes, %v", x, len(wire), err)
	}
	records, err := all(chunkOf(wire, 0))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range records {
		got = append(got, fmt.Sprintf("%d %s %d", r.Offset, r.Value, r.Timestamp))
	}
	want := []string{fmt.Sprintf("0 a %d", noTime), "1 b 50", "4 c 100", "6 d 101", "7 c 777", "9 d 777", "10 e 5"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if records, err := all(chunkOf(wire, 5)); err != nil || !slices.Equal(offsets(records), []int64{6, 7, 9, 10}) {
		t.Errorf("from 5: %v, %v", offsets(records), err)
	}
	wire[20] ^= 1
	if _, err := all(chunkOf(wire, 0)); err == nil {
		t.Error("a broken message is read")
	}
}

// signLegacy writes an old message's length and checksum.
func signLegacy(wire []byte) []byte {
	binary.BigEndian.PutUint32(wire[atLength:], uint32(len(wire)-lengthFrom))
	binary.BigEndian.PutUint32(wire[12:], crc32.ChecksumIEEE(wire[atMagic:]))
	return wire
}

// Frames of all kinds decompress to what the usual reader makes of them.
func TestLZ4FramesOfAllKinds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 300_000)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	for name, raw := range map[string][]byte{
		"empty": {}, "short": []byte("a"), "noise": noise, "text": []byte(strings.Repeat("one, two, three; ", 50_000)),
		"both": slices.Concat(noise[:100_000], bytes.Repeat([]byte("z"), 500_000), noise[100_000:]),
	} {
		for i, frame := range lz4Frames(t, raw) {
			for _, room := range []int{0, 10, len(raw), 2 * len(raw)} {
				got, ok := unlz4(frame, room, 4<<20)
				if !ok || !bytes.Equal(got, raw) {
					t.Errorf("%s, frame %d, room for %d: %d bytes of %d, %v", name, i, room, len(got), len(raw), ok)
				}
			}
			for n := range min(len(frame), 64) {
				if got, ok := unlz4(frame[:n], 0, 4<<20); ok {
					t.Errorf("%s, frame %d cut to %d bytes: %d bytes", name, i, n, len(got))
				}
			}
		}
	}
}
