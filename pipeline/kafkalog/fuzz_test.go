package kafkalog

import (
	"runtime"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// FuzzBatch: whatever a broker sends is read or refused, in bounded memory.
func FuzzBatch(f *testing.F) {
	const most = 1 << 20
	for _, codec := range codecs {
		wire := made{first: 3, attributes: codec, base: 5, records: []kmsg.Record{
			{Key: []byte("k"), Value: []byte("a value, a value, a value"), Headers: []kmsg.Header{{Key: "h", Value: []byte("v")}}}, value("another"),
		}}.bytes(f)
		f.Add(wire, int64(0))
		f.Add(slices.Concat(wire, made{first: 5, attributes: attrControl, records: []kmsg.Record{{Key: []byte{0, 0, 0, 1}}}}.bytes(f)), int64(4))
	}
	m := kmsg.MessageV1{Offset: 6, Magic: 1, Timestamp: 7, Value: []byte("old")}
	f.Add([]byte("0"), int64(94)) // no batch at all
	f.Add(signLegacy(m.AppendTo(nil)), int64(0))
	f.Fuzz(func(t *testing.T, raw []byte, from int64) {
		for _, signed := range []bool{false, true} {
			if signed && len(raw) >= batchHeader { // else few get past the checksum
				raw = sign(slices.Clone(raw))
			}
			x, err := span(raw, from)
			whole, next, cut := x.whole, x.next, x.cut
			if whole > len(raw) || next < from || cut < 0 || cut > 0 && cut <= len(raw)-whole {
				t.Fatalf("%d bytes: %d whole, next %d after %d, %d cut off", len(raw), whole, next, from, cut)
			}
			if err != nil {
				continue
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			c := &Chunk{raw: raw[:whole:whole], from: from, place: from, unpack: &unpacker{most: most}, committed: true}
			records, _ := all(c)
			if c.Place() < from {
				t.Errorf("place %d, and from %d on was asked for", c.Place(), from)
			}
			runtime.ReadMemStats(&after)
			// Every batch has a header's length at least, and gets twice what it may become while
			// its memory grows.
			if grown, bound := after.TotalAlloc-before.TotalAlloc, uint64(32<<20+whole/batchHeader*4*most); grown > bound {
				t.Errorf("%d bytes took %d bytes of memory", whole, grown)
			}
			for _, r := range records {
				if r.Offset < from {
					t.Errorf("offset %d, and from %d on was asked for", r.Offset, from)
				}
				list(r.Headers)
			}
		}
	})
}
