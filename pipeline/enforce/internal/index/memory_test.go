package index

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// The promise of memory: 27 bytes an entry and the key, and a reserve of a quarter for growth and
// for what was replaced.
func TestBytesAnEntry(t *testing.T) {
	for _, n := range []int{10_000, 300_000} {
		before := heapBytes()
		x := newIndex(false)
		all := make([]verdict.Verdict, n)
		for i := range all {
			all[i] = block("orders", "uid="+strconv.Itoa(1_000_000_000+i), func(v *verdict.Verdict) { v.Seq = int64(i) })
		}
		x.Replace(0, all)
		snapshot := float64(x.Bytes()) / float64(n)
		for i := range all { // every one of them changes
			all[i].Seq += int64(n)
			all[i].Until += event.Micros(i)
			x.Apply(0, all[i:i+1])
		}
		clear(all)
		all = nil
		real := float64(int64(heapBytes()-before)) / float64(n)
		changed := float64(x.Bytes()) / float64(n)
		const key, most = 10, 27 * 1.25
		t.Logf("%d entries: %.1f bytes each and the key after a snapshot, %.1f after each changed; %.1f of the heap", n, snapshot-key, changed-key, real-key)
		if snapshot > key+most || changed > key+most+5 || real > key+most+10 { // 5: each has a length of its own
			t.Errorf("%d entries: %.1f, %.1f and %.1f bytes each", n, snapshot, changed, real)
		}
		runtime.KeepAlive(x)
	}
}

func heapBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A verdict for which there is no room is left out, and the index says so; those that it has stay.
func TestAFullIndexKeepsWhatItHas(t *testing.T) {
	defer func(n int) { maxChunks = n }(maxChunks)
	maxChunks = 3
	x := newIndex(false)
	n, began := 0, 0
	for ; !x.Full(); n++ {
		x.ApplyThen(0, []verdict.Verdict{block("r", fmt.Sprintf("uid=%d", n), nil)}, func(*verdict.Verdict) { began++ })
	}
	if x.Len() != n-1 || began != n-1 || n < 100 || len(x.w.arena.data) != maxChunks {
		t.Errorf("%d verdicts of %d in %d chunks, want all but one in %d", x.Len(), n, len(x.w.arena.data), maxChunks)
	}
	for i := range n - 1 {
		if _, found := x.User(strconv.Itoa(i)); !found {
			t.Errorf("%d of %d is lost", i, n)
		}
	}
	x.Sweep(t0 + event.Hour)
	x.Apply(0, []verdict.Verdict{block("r", "uid=again", nil)})
	if x.Full() || x.Len() != 1 {
		t.Errorf("full: %v, with %d verdicts after all ran out", x.Full(), x.Len())
	}
}

// Classes, shapes, chunks and buckets that nothing has any more are given up.
func TestWhatNothingHasIsGivenUp(t *testing.T) {
	x := newIndex(false)
	const classes = wideClass + 10
	for i := range classes {
		x.Apply(0, []verdict.Verdict{block("c", fmt.Sprintf("uid=%d", i), func(v *verdict.Verdict) { v.Limit = event.Decimal(i + 1) })})
	}
	for i := range 300 {
		x.Apply(0, []verdict.Verdict{block("s", fmt.Sprintf("attrs.a%d=1", i), nil)})
	}
	if v := x.View(); len(v.shapes) != 301 || len(v.classes) != classes+1 || len(x.w.interned) != classes+1 {
		t.Fatalf("%d shapes, %d classes of which %d are known; want 301, uid's among them, and %d", len(v.shapes), len(v.classes), len(x.w.interned), classes+1)
	}
	if _, ok := byPieces(x, strconv.Itoa(classes-1)); ok {
		t.Error("the pieces read a class whose number does not fit into a record's head")
	}
	x.Sweep(t0 + event.Hour)
	v := x.View()
	if x.Len() != 0 || x.Bytes() > minChunk+minBuckets*bucketBytes || len(x.w.interned) != 0 || len(v.shapes) != 1 || len(v.buckets) != minBuckets {
		t.Errorf("%d verdicts, %d bytes, %d classes, %d shapes and %d buckets after all ran out", x.Len(), x.Bytes(), len(x.w.interned), len(v.shapes), len(v.buckets))
	}
	if err := verify(x); err != nil {
		t.Error(err)
	}
}
