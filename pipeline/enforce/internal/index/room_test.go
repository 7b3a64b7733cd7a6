package index

import (
	"encoding/binary"
	"slices"
	"strconv"
	"testing"
	"unsafe"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// users are verdicts on n users, whose uids begin with name.
func users(name string, n int) []verdict.Verdict {
	all := make([]verdict.Verdict, n)
	for i := range all {
		all[i] = block("r", "uid="+name+strconv.Itoa(i), nil)
	}
	return all
}

// A chunk is filled to its last byte, and the next one is as large as befits what is held.
func TestSizesOfChunks(t *testing.T) {
	a := arena{head: -1}
	rec := make([]byte, 64)
	for i := range minChunk / len(rec) {
		if ref, ok := a.add(rec); !ok || ref != uint32(i*len(rec)/refUnit) {
			t.Fatalf("record %d is at %d, %v", i, ref, ok)
		}
	}
	if a.size != minChunk || a.live != minChunk || a.head != 0 {
		t.Errorf("%d bytes in chunks up to %d, %d of them live; want one full chunk", a.size, a.head, a.live)
	}
	if ref, ok := a.add(rec[:3]); !ok || ref != 1<<offsetBits || a.use[1].used != 4 {
		t.Errorf("the next record is at %x, %v, in %d bytes, want the beginning of chunk 1, and 4", ref, ok, a.use[1].used)
	}
	for _, c := range []struct{ live, atLeast, want int }{
		{0, 1, minChunk}, {8 * minChunk, 1, minChunk}, {8*minChunk + 8, 1, 2 * minChunk},
		{1 << 40, 1, maxChunk}, {0, minChunk + 1, minChunk + 2},
	} {
		b := arena{head: -1, live: c.live}
		if !b.open(c.atLeast) || len(b.data[0]) != c.want || b.size != c.want {
			t.Errorf("with %d bytes held a chunk for %d has %d, want %d", c.live, c.atLeast, len(b.data[0]), c.want)
		}
	}
}

// Garbage is removed when it is more than an eighth of what is held, beside one chunk; first where
// there is most of it.
func TestTheChunkWithTheMostGarbage(t *testing.T) {
	a := arena{head: -1}
	for range 5 {
		a.open(minChunk)
	}
	for i := range a.use {
		a.use[i] = use{used: minChunk, live: minChunk}
	}
	a.live = 5 * minChunk
	loses := func(number, bytes int) {
		a.use[number].live -= bytes
		a.live -= bytes
	}
	loses(4, minChunk) // the newest is never the worst
	if got := a.worst(); got != -1 {
		t.Errorf("the worst is %d, but only the newest has garbage", got)
	}
	loses(1, 400)
	if got := a.worst(); got != -1 {
		t.Errorf("the worst is %d with %d bytes of garbage to %d that are held", got, a.size-a.live, a.live)
	}
	loses(2, 1600)
	loses(3, 32)
	if got := a.worst(); got != 2 {
		t.Errorf("the worst is %d, want 2", got)
	}
	if a.head = 0; a.worst() != 4 {
		t.Errorf("the worst is %d when the newest has number 0, want 4", a.worst())
	}
	a.head = 4
	a.free(2)
	if a.data[2] != nil || a.size != 4*minChunk {
		t.Errorf("%d bytes after a chunk was given up", a.size)
	}
	if a.open(1); a.head != 2 {
		t.Errorf("the next chunk has number %d, want 2 again", a.head)
	}
}

// Of the garbage as much is left as an eighth of what is held, beside one chunk, to the byte.
func TestHowMuchGarbageIsLeft(t *testing.T) {
	for live, want := range map[int]int{22: -1, 20: 0} {
		a := arena{data: [][]byte{make([]byte, 24), make([]byte, 16)}, use: []use{{live: live - 16}, {live: 16}}, head: 1, size: 40, live: live}
		if got := a.worst(); got != want {
			t.Errorf("%d of 40 bytes are held, and the chunk to vacate is %d, want %d", live, got, want)
		}
	}
}

// A large chunk goes with its last record, also where it is the only one; a small one stays.
func TestTheLastChunk(t *testing.T) {
	for size, want := range map[int]bool{minChunk: false, 2 * minChunk: true} {
		a := arena{head: -1}
		if a.spare() {
			t.Error("an arena without chunks has one to spare")
		}
		if a.open(size); a.spare() != want {
			t.Errorf("a chunk of %d bytes, none of them held, is to spare: %v, want %v", size, a.spare(), want)
		}
	}
}

// Behind its key a usual record has two bytes: the sequence number and the count. A duration is
// written when it is not the class's, and a whole count is in units: a hundred takes two bytes.
func TestUsualRecordsAreShort(t *testing.T) {
	size := func(count event.Decimal) int {
		v := block("r", "uid=1", nil)
		h := held{class: newClass(0, 0, &v, ""), since: v.Since, until: v.Until, count: count}
		return len(appendRecord(nil, shapeUID, []byte("1"), []held{h}))
	}
	if got, want := size(0), keyAt+1+2; got != want {
		t.Errorf("a record of a key of one byte has %d bytes, want %d", got, want)
	}
	if whole, half := size(100*event.One), size(100*event.One+event.One/2); whole != size(0)+1 || half != size(0)+3 {
		t.Errorf("100 takes %d bytes more than 0, and 100.5 takes %d, want 1 and 3", whole-size(0), half-size(0))
	}
}

// Buckets are made anew with a quarter more, until chance flags few enough of them; here all keys
// belong to the first one.
func TestMoreBucketsWhereManyOverflow(t *testing.T) {
	x := newIndex(false)
	var all []verdict.Verdict
	for n := 0; len(all) < 60*slotsPerBucket; n++ {
		if name := strconv.Itoa(n); UserOf(name).hash>>55 == 0 { // the first of up to 512 buckets
			all = append(all, block("r", "uid="+name, nil))
		}
	}
	x.Apply(0, all)
	x.w.resize(len(all))
	if got, want := len(x.View().buckets), 249; got != want { // 101, 127, 159, 199
		t.Errorf("%d buckets, want %d: of these 59 may be flagged, of 219 not", got, want)
	}
	if err := verify(x); err != nil {
		t.Error(err)
	}
	x.w.flagged = len(x.View().buckets) // the next key floods it
	x.Apply(0, users("one-more", 1))
	if got, want := len(x.View().buckets), 264; got != want { // 107 for a sixteenth more, 134, 168, 211
		t.Errorf("%d buckets for a key more, want %d", got, want)
	}
}

// A walk over many buckets goes in steps, and begins again when it finds others in their place.
func TestAWalkOverMany(t *testing.T) {
	x := newIndex(false)
	const many = 40_000
	x.Replace(0, users("u", many))
	seen, again, moves := 0, 0, 0
	walk := func(do func()) {
		x.Walk(func(Record) { seen++; do() }, func() { seen = 0; again++ })
	}
	if walk(func() {}); seen != many || again != 1 {
		t.Errorf("%d records of %d, begun %d times, want all, at once", seen, many, again)
	}
	again = 0
	walk(func() {
		if moves == 0 {
			moves++
			x.w.resize(2 * many)
		}
	})
	if seen != many || again != 2 {
		t.Errorf("%d records of %d, begun %d times, want all, and twice, since the buckets were made anew", seen, many, again)
	}
}

// A snapshot makes room for all that it brings at once, and for nothing that it replaces.
func TestRoomForASnapshot(t *testing.T) {
	x := newIndex(false)
	buckets := func(when string, keys int) {
		t.Helper()
		if got, want := len(x.View().buckets), bucketsFor(keys); got < want || got > want+want/2 {
			t.Errorf("%s: %d buckets, want %d", when, got, want)
		}
	}
	x.Replace(0, users("a", 3000))
	buckets("a first snapshot", 3000)
	before := len(x.View().buckets)
	x.Replace(0, users("a", 3000))
	if got := len(x.View().buckets); got != before {
		t.Errorf("the same snapshot again: %d buckets, want %d as before", got, before)
	}
	x.Replace(1, users("b", 3000)) // more than half as many
	buckets("a second shard", 6000)
	x.Replace(2, users("c", 100))
	x.Replace(3, users("d", 3000))
	buckets("a third of it more", 9150)
	if err := verify(x); err != nil {
		t.Error(err)
	}
}

// One user's verdict takes one small chunk, and its walk ends at the first bucket.
func TestASmallIndexIsSmall(t *testing.T) {
	x := newIndex(false)
	x.Apply(0, users("u", 2))
	if want := minChunk + minBuckets*bucketBytes; x.Bytes() != want {
		t.Errorf("%d bytes, want %d", x.Bytes(), want)
	}
	v := x.View()
	for n := range 100 {
		if p := v.Start(UserOf("nobody" + strconv.Itoa(n))); !p.Last() {
			t.Fatalf("the walk goes on behind bucket %d, which did not overflow", p.at)
		}
	}
}

// Of 8 to 16 bytes the first and the last eight are compared, and both must be the user's.
func TestBothHalvesOfAUIDCount(t *testing.T) {
	for _, c := range []struct {
		asked string
		is    bool
	}{
		{"abcdefgh12345678", true}, {"abcdefgh12345679", false}, {"bbcdefgh12345678", false}, {"Abcdefgh12345679", false},
	} {
		data := binary.LittleEndian.AppendUint16(nil, 16<<8|shapeUID)
		data = append(append(data, make([]byte, headSize)...), "abcdefgh12345678"...)
		r := Raw{unsafe.Pointer(&data[0])}
		if r.Is(16, UserOf(c.asked)) != c.is || !r.Fits(16) || r.Fits(15) || r.UID(16) != "abcdefgh12345678" {
			t.Errorf("%s: %v, want %v", c.asked, !c.is, c.is)
		}
	}
}

// An index that is much larger than it need be shrinks to what it holds, and a sixteenth.
func TestAnIndexShrinks(t *testing.T) {
	x := newIndex(false)
	x.Replace(0, users("a", 20_000))
	x.Replace(0, users("a", 1600))
	if got, want := len(x.View().buckets), bucketsFor(1700); got != want {
		t.Errorf("%d buckets for 1,600 keys after 20,000, want %d", got, want)
	}
	x = newIndex(false)
	x.Replace(0, users("a", 155))
	before := len(x.View().buckets)
	if before != 4*bucketsFor(36) {
		t.Fatalf("%d buckets for 155 keys, want %d", before, 4*bucketsFor(36))
	}
	x.Replace(0, users("a", 36))
	if got := len(x.View().buckets); got != before {
		t.Errorf("%d buckets for 36 keys, want %d still: four times what they need", got, before)
	}
}

// A verdict ends at its until, and is swept from then on.
func TestASweepEndsAtUntil(t *testing.T) {
	x := newIndex(false)
	end := t0 + event.Minute
	x.Apply(0, []verdict.Verdict{
		block("r", "uid=1", nil), block("r", "uid=2", func(v *verdict.Verdict) { v.Until = end + 1 }),
		block("r", "uid=3", nil), block("s", "uid=3", func(v *verdict.Verdict) { v.Until = end + 1 }),
	})
	for _, c := range []struct {
		at   event.Micros
		left int
	}{{end - 1, 4}, {end, 2}, {end + 1, 0}} {
		if x.Sweep(c.at); x.Len() != c.left {
			t.Errorf("%d verdicts are left %d µs after until, want %d", x.Len(), c.at-end, c.left)
		}
	}
}

// A key without dimensions, or with an empty value, is nobody's.
func TestVerdictsOnNobodyAreLeftOut(t *testing.T) {
	x := newIndex(false)
	for _, key := range [][]event.Dim{nil, {{Name: "uid"}}, {{Name: "attrs.a", Value: "1"}, {Name: "uid"}}} {
		v := block("r", "uid=42", nil)
		v.Key = key
		if x.Apply(0, []verdict.Verdict{v}); x.Len() != 0 {
			t.Errorf("a verdict on %v is held", key)
		}
	}
}

// An index that grows key by key makes its buckets anew for a sixteenth more than it holds.
func TestAnIndexGrows(t *testing.T) {
	x := newIndex(false)
	before := len(x.View().buckets)
	for i, v := range users("u", 5000) {
		x.Apply(0, []verdict.Verdict{v})
		got := len(x.View().buckets)
		if want := bucketsFor(i + i/16); got != before && (got < want || got > 2*want+8) {
			t.Fatalf("%d buckets made for %d keys, want %d", got, i, want)
		}
		before = got
	}
}

// Numbers of classes and shapes that nothing has are used again, the first ones too.
func TestNumbersAreUsedAgain(t *testing.T) {
	x := newIndex(false)
	end := t0 + event.Minute
	later := func(v *verdict.Verdict) { v.Until, v.Since = end+event.Minute, v.Since+event.Minute }
	x.Apply(0, []verdict.Verdict{
		block("ends", "attrs.a=1", nil), block("stays", "attrs.b=1", later),
	})
	was := x.View()
	classes, shapes := slices.Clone(was.classes), slices.Clone(was.shapes)
	x.Sweep(end)
	if !slices.Equal(was.classes, classes) || !slices.Equal(was.shapes, shapes) {
		t.Error("what a reader may still see was changed")
	}
	x.Apply(0, []verdict.Verdict{block("comes", "attrs.c=1", later)})
	v := x.View()
	if len(v.classes) != 2 || v.classes[0].Verdict.Rule != "comes" || v.classes[1].Verdict.Rule != "stays" {
		t.Errorf("%d classes, want the new one in the place of the first", len(v.classes))
	}
	if len(v.shapes) != 3 || v.shapes[1].names[0] != "attrs.c" || v.shapes[2].names[0] != "attrs.b" {
		t.Errorf("%d shapes, want the new one in the place of the first after uid's", len(v.shapes))
	}
	if err := verify(x); err != nil {
		t.Error(err)
	}
}
