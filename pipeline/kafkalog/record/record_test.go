package record

import (
	"encoding/binary"
	"math"
	"testing"
)

// FuzzTimes: whatever times a batch and its records say, a record's is one that can be written, and the nearest
// to what is meant.
func FuzzTimes(f *testing.F) {
	for _, at := range []int64{0, -1, 1_800_000_000_000, math.MaxInt64 / 1000, math.MaxInt64/1000 + 1, math.MaxInt64, math.MinInt64} {
		f.Add(at, int64(0), at, false)
		f.Add(at, int64(math.MaxInt64), at, true)
		f.Add(at, int64(math.MinInt64), int64(0), false)
		f.Add(int64(1_800_000_000_000), at, at, false)
	}
	f.Fuzz(func(t *testing.T, base, since, most int64, appendTime bool) {
		body := binary.AppendVarint([]byte{0}, since)
		for _, n := range []int64{0, -1, -1, 0} { // offset, key, value, headers
			body = binary.AppendVarint(body, n)
		}
		src := append(binary.AppendVarint(nil, int64(len(body))), body...)
		var rec Record
		if _, err := rec.Decode(src, &Batch{Past: -1, BaseTime: base, MaxTime: most, AppendTime: appendTime}); err != nil {
			t.Fatal(err)
		}
		want := most
		if !appendTime {
			want = base + since
			if base > 0 && since > 0 && want < 0 {
				want = math.MaxInt64
			} else if base < 0 && since < 0 && want >= 0 {
				want = math.MinInt64
			}
		}
		if base == Clamp(base) && rec.Timestamp != Clamp(want) || rec.Timestamp != Clamp(rec.Timestamp) {
			t.Errorf("a record at %d + %d, at most %d, is at %d, want %d", base, since, most, rec.Timestamp, Clamp(want))
		}
		if at := rec.Time(); at.UnixMilli() != rec.Timestamp || at.UnixMicro()/1000 != rec.Timestamp {
			t.Errorf("%d becomes %v", rec.Timestamp, at)
		}
	})
}
