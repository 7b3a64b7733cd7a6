package enforce

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// An empty slot's reference may be of a chunk that is gone: a check panicked when the search by words took an empty slot,
// behind one that has the tag, for another that has it.
func TestAnEmptySlotIsNoCandidate(t *testing.T) {
	for range 100_000 {
		word, want := uint64(0), tagOf(rand.Uint64())
		var tags [slotsPerBucket]uint64
		for i := range tags {
			if rand.IntN(2) == 0 {
				tags[i] = tagOf(rand.Uint64N(4) ^ want)
			}
			word |= tags[i] << (8 * i)
		}
		if rand.IntN(2) == 0 {
			word |= overflowed
		}
		found := map[int]bool{}
		for m := candidates(word, want*lowBytes); m != 0; m &= m - 1 {
			found[slotOf(m)] = true
		}
		for i, tag := range tags {
			if tag == want && !found[i] || tag == 0 && found[i] {
				t.Fatalf("tags %x, looking for %x: slot %d is a candidate: %v", tags, want, i, found[i])
			}
		}
	}
}

// The promise of memory: 27 bytes an entry and the key, and a reserve of a quarter for growth and for what was replaced.
func TestBytesAnEntry(t *testing.T) {
	for _, n := range []int{10_000, 300_000} {
		before := heapBytes()
		table := newTable(t)
		all := make([]verdict.Verdict, n)
		for i := range all {
			all[i] = block("orders", "uid="+strconv.Itoa(1_000_000_000+i), func(v *verdict.Verdict) { v.Seq = int64(i) })
		}
		table.Replace(0, all)
		snapshot := float64(table.Bytes()) / float64(n)
		for i := range all { // every one of them changes
			all[i].Seq += int64(n)
			all[i].Until += event.Micros(i)
			table.Apply(0, all[i:i+1])
		}
		clear(all)
		all = nil
		real := float64(int64(heapBytes()-before)) / float64(n)
		changed := float64(table.Bytes()) / float64(n)
		const key, most = 10, 27 * 1.25
		t.Logf("%d entries: %.1f bytes each and the key after a snapshot, %.1f after each changed; %.1f of the heap", n, snapshot-key, changed-key, real-key)
		if snapshot > key+most || changed > key+most+5 || real > key+most+10 { // 5: each has a length of its own
			t.Errorf("%d entries: %.1f, %.1f and %.1f bytes each", n, snapshot, changed, real)
		}
		runtime.KeepAlive(table)
	}
}

func heapBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestWhatDoesNotFitInARecordsHead(t *testing.T) {
	table := newTable(t)
	long := strings.Repeat("x", 300)
	table.Apply(0, []verdict.Verdict{block("r", "uid="+long, nil), block("r", "uid="+long[:255], nil)})
	for i := range 300 { // shapes
		table.Apply(0, []verdict.Verdict{block("s", fmt.Sprintf("attrs.a%d=1", i), nil)})
	}
	for i := range wideClass + 10 {
		table.Apply(0, []verdict.Verdict{block("c", fmt.Sprintf("uid=%d", i), func(v *verdict.Verdict) { v.Limit = event.Decimal(i + 1) })})
	}
	table.clock.Store(int64(t0))
	for i, uid := range []string{long, long[:255], "0", strconv.Itoa(wideClass - 1), strconv.Itoa(wideClass), strconv.Itoa(wideClass + 9)} {
		if d := table.Check("a", uid); d.Allowed {
			t.Errorf("user %d is let through", i)
		}
	}
	if d := table.Check("a", strconv.Itoa(wideClass+9)); d.Limit() != wideClass+10 {
		t.Errorf("limit %d, want %d", d.Limit(), wideClass+10)
	}
	if !table.Check("a", long[:254]).Allowed || !table.Check("a", long[:299]).Allowed {
		t.Error("someone else is denied")
	}
	for _, i := range []int{0, 299} {
		if table.CheckDimsAt(t0, "a", []event.Dim{{Name: fmt.Sprintf("attrs.a%d", i), Value: "1"}}).Allowed {
			t.Errorf("attrs.a%d=1 is let through", i)
		}
	}
	table.forget(t0 + event.Hour)
	if v := table.view.Load(); table.Len() != 0 || table.Bytes() > 16<<10 || len(table.store.classes) != 0 {
		t.Errorf("%d verdicts, %d bytes and %d of %d classes after all ran out", table.Len(), table.Bytes(), len(table.store.classes), len(v.classes))
	}
}

// A verdict for which there is no room is left out, and the table says so; those that it has stay.
func TestAFullTableKeepsWhatItHas(t *testing.T) {
	defer func(n int) { maxChunks = n }(maxChunks)
	maxChunks = 3
	table := newTable(t)
	n := 0
	for ; !table.Full(); n++ {
		table.Apply(0, []verdict.Verdict{block("r", fmt.Sprintf("uid=%d", n), nil)})
	}
	if table.Len() != n-1 || n < 100 {
		t.Errorf("%d verdicts of %d", table.Len(), n)
	}
	for i := range n - 1 {
		if table.CheckAt(t0, "a", strconv.Itoa(i)).Allowed {
			t.Errorf("%d of %d is let through", i, n)
		}
	}
	table.forget(t0 + event.Hour)
	table.Apply(0, []verdict.Verdict{block("r", "uid=again", nil)})
	if table.Full() || table.Len() != 1 {
		t.Errorf("full: %v, with %d verdicts after all ran out", table.Full(), table.Len())
	}
}

// The coarse clock is behind; a verdict ends on time all the same, and begins on time.
func TestEndsAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t)
		at := now()
		table.clock.Store(int64(at))
		table.Apply(0, []verdict.Verdict{block("r", "uid=42", func(v *verdict.Verdict) {
			v.Since, v.Until = at+200*event.Millisecond, at+900*event.Millisecond
		})})
		table.clock.Store(int64(at)) // nobody moves it
		dims := []event.Dim{{Name: "uid", Value: "42"}}
		for _, step := range []struct {
			sleep   time.Duration
			allowed bool
		}{
			{200*time.Millisecond - time.Microsecond, true}, {time.Microsecond, false},
			{700*time.Millisecond - time.Microsecond, false}, {time.Microsecond, true},
		} {
			time.Sleep(step.sleep)
			d, e := table.Check("a", "42"), table.CheckDims("a", dims)
			if d.Allowed != step.allowed || e.Allowed != step.allowed {
				t.Errorf("%v after the beginning: allowed %v and %v, want %v", time.Duration(now()-at)*time.Microsecond, d.Allowed, e.Allowed, step.allowed)
			}
		}
	})
}

func TestCoversAsVerdictsDo(t *testing.T) {
	for _, apis := range [][]string{
		{"*"}, {"a.*"}, {"a"}, {"a.b", "c.*"}, {"a.*", "c.*"}, {"a.*.c"}, {"*.c", "d"}, {"a.*", "a.b.*"}, {"a.b.*", "a.*"}, {"a.b*", "*"}, {},
	} {
		v := verdict.Verdict{APIs: apis}
		c := newClass(0, &v, "")
		for _, api := range []string{"a", "a.b", "a.b.c", "a.x.c", "c", "c.d", "d", "x.c", ""} {
			if got, want := c.covers(api), v.Covers(api); got != want {
				t.Errorf("%q covers %q: %v, want %v", apis, api, got, want)
			}
		}
	}
}
