package kafkalog

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// batchOf has n events, as the throughput benchmark's.
func batchOf(tb testing.TB, codec int16, n int) []byte {
	var records []kmsg.Record
	for i := range n {
		records = append(records, kmsg.Record{
			Key: fmt.Appendf(nil, "user-%07d", i*7919%1_000_000),
			Value: fmt.Appendf(nil, `{"uid":"user-%07d","api":"search.query","outcome":"success","ip":"203.0.113.%d","attrs":{"device":"d%d","bytes":%d,"discounted":true}}`,
				i*7919%1_000_000, i%250, i%1000, i%4096),
			Headers: []kmsg.Header{{Key: "tallygate-instance", Value: []byte("0123456789abcdef")}, {Key: "tallygate-sequence", Value: []byte("1234567")}},
		})
	}
	return made{attributes: codec | attrAppendTime, max: 1_795_000_000_000, records: records}.bytes(tb)
}

// walk reads all records of a chunk, and their headers.
func walk(tb testing.TB, raw []byte, u *unpacker) (n int) {
	c := Chunk{raw: raw, unpack: u}
	for {
		b, ok, err := c.Next()
		if err != nil {
			tb.Fatal(err)
		}
		if !ok {
			return n
		}
		n += walkBatch(tb, &b)
	}
}

func walkBatch(tb testing.TB, b *Batch) (n int) {
	var rec Record
	for {
		ok, err := b.Next(&rec)
		if err != nil {
			tb.Fatal(err)
		}
		if !ok {
			return n
		}
		n++
		for h := rec.Headers; h.Len() > 0; {
			h.Next()
		}
	}
}

var raceDetector bool // see race_test.go

// A batch costs its memory; its records cost nothing.
func TestARecordAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates, too")
	}
	const records = 1000
	for name, codec := range map[string]int16{"none": codecNone, "lz4": codecLZ4} {
		raw, u := batchOf(t, codec, records), &unpacker{most: 64 << 20}
		walk(t, raw, u) // now it knows how large batches become
		if n := testrun.Allocs(20, func() { walk(t, raw, u) }); n > 3 {
			t.Errorf("%s: %v allocations for %d records", name, n, records)
		}
	}
}

func BenchmarkWalk(b *testing.B) {
	const records = 1000
	for _, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		b.Run(name, func(b *testing.B) {
			raw, u := batchOf(b, codecs[name], records), &unpacker{most: 64 << 20}
			n := 0
			for b.Loop() {
				n += walk(b, raw, u)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/record")
		})
	}
}
