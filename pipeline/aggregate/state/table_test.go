package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

func TestClassesHoldWhatTheySay(t *testing.T) {
	for n := 1; n < 1<<20; n += 1 + n/97 {
		k := classOf(n)
		if k >= 64 || sizeOf(k) < n || (k > 0 && sizeOf(k-1) >= n) {
			t.Fatalf("%d bytes: class %d of %d bytes, the one below has %d", n, k, sizeOf(k), sizeOf(max(0, k-1)))
		}
	}
}

// A map and a set of changed keys are the model. In half of the runs sizes are used up: what has no
// room left among its own takes a larger chunk. (Beyond 2^26 chunks of a size, names of chunks once
// ran into those of the next one.)
func TestTableAgainstMap(t *testing.T) {
	for seed := range uint64(testrun.Depth(20)) {
		rng := rand.New(rand.NewPCG(seed, 1))
		tab, model, dirty := New(), map[string][]byte{}, map[string]bool{}
		if seed%2 > 0 {
			tab.heap.most = 25
		}
		var cut *Cut
		inCut := map[string]bool{}
		readSome := func(n int) {
			for ; n > 0 && cut != nil; n-- {
				ref, ok := cut.Next()
				if !ok {
					if len(inCut) > 0 {
						t.Fatalf("seed %d: the cut ended before %d changed keys", seed, len(inCut))
					}
					cut = nil
					return
				}
				if ref == 0 {
					continue
				}
				key := string(tab.Key(ref))
				if !inCut[key] {
					t.Fatalf("seed %d: %q is in the cut, and should not be", seed, key)
				}
				if !bytes.Equal(tab.Block(ref), model[key]) {
					t.Fatalf("seed %d: the cut has an old block of %q", seed, key)
				}
				delete(inCut, key)
			}
		}
		for range 20000 {
			key := fmt.Appendf(nil, "uid=%d", rng.IntN(500))
			switch op := rng.IntN(100); {
			case op < 70:
				block := make([]byte, rng.IntN(300))
				for i := range block {
					block[i] = byte(rng.Uint32())
				}
				tab.Set(key, block)
				model[string(key)] = block
				if !inCut[string(key)] {
					dirty[string(key)] = true
				}
			case op < 85:
				tab.Delete(key)
				delete(model, string(key))
				delete(dirty, string(key))
				delete(inCut, string(key))
			case op < 95:
				readSome(20)
			default:
				readSome(1 << 30)
				cut, inCut, dirty = tab.Cut(), dirty, map[string]bool{}
			}
		}
		if tab.Len() != len(model) {
			t.Fatalf("seed %d: %d keys, want %d", seed, tab.Len(), len(model))
		}
		n := 0
		for ref := range tab.All() {
			n++
			if !bytes.Equal(model[string(tab.Key(ref))], tab.Block(ref)) {
				t.Fatalf("seed %d: wrong block of %q", seed, tab.Key(ref))
			}
		}
		if n != len(model) {
			t.Fatalf("seed %d: All yields %d keys, want %d", seed, n, len(model))
		}
	}
}

// Whatever was stored, grown and deleted, a walk through memory sees each key once, also in several calls.
func TestAWalkThroughMemorySeesEveryKey(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	table, want := New(), map[string]int{}
	for range 5000 {
		key, block := fmt.Sprint(rng.IntN(900)), make([]byte, rng.IntN(400))
		if rng.IntN(3) == 0 {
			table.Delete([]byte(key))
			delete(want, key)
			continue
		}
		table.Set([]byte(key), block)
		want[key] = len(block)
	}
	for _, most := range []int{1, 64, len(want), 1 << 20} {
		seen, calls := map[string]int{}, 0
		for place, more := (Place{}), true; more; calls++ {
			place, more = table.InMemory(place, most, func(ref Ref) bool {
				seen[string(table.Key(ref))] = len(table.Block(ref))
				return calls%2 == 0 || most == 1 // every second call sees one
			})
		}
		if !maps.Equal(seen, want) {
			t.Errorf("%d at once: %d keys are seen of %d", most, len(seen), len(want))
		}
	}
}

func TestSweepVisitsEveryKey(t *testing.T) {
	tab := New()
	for i := range 1000 {
		tab.Set(fmt.Appendf(nil, "k%d", i), nil)
	}
	seen := map[string]bool{}
	for range 1000 {
		for ref := range tab.Sweep(10) {
			seen[string(tab.Key(ref))] = true
		}
	}
	if len(seen) != 1000 {
		t.Fatalf("the sweep saw %d of 1000 keys", len(seen))
	}
}

func TestGetAndSetInPlaceDoNotAllocate(t *testing.T) {
	tab := New()
	key, block := []byte("uid=42"), make([]byte, 200)
	tab.Set(key, block)
	if n := testrun.Allocs(100, func() {
		ref, _ := tab.Get(key)
		block[0] = tab.Block(ref)[0] + 1
		tab.Set(key, block)
	}); n != 0 {
		t.Fatalf("%v allocations, want 0", n)
	}
}

func BenchmarkSet1M(b *testing.B) {
	tab := New()
	key := make([]byte, 8)
	block := make([]byte, 180)
	for i := range uint64(1_000_000) {
		binary.LittleEndian.PutUint64(key, i)
		tab.Set(key, block)
	}
	var i uint64
	for b.Loop() {
		i = i*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(key, i>>11%1_000_000)
		ref, _ := tab.Get(key)
		block[0] = tab.Block(ref)[0]
		tab.Set(key, block)
		tab.Copied(ref)
		if tab.Dirty() > 1<<16 {
			for c := tab.Cut(); ; {
				if _, ok := c.Next(); !ok {
					break
				}
			}
		}
	}
	b.ReportMetric(float64(tab.Bytes())/1e6, "bytes/key")
}

// BenchmarkCut copies changed blocks, which lie anywhere among those of a million keys. An op is a copy.
func BenchmarkCut(b *testing.B) {
	tab := New()
	key, block := make([]byte, 8), make([]byte, 350)
	hashes := make([]uint64, 1_000_000)
	for i := range hashes {
		binary.LittleEndian.PutUint64(key, uint64(i))
		hashes[i] = Hash(key)
		tab.Load(hashes[i], key, block)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for copies := 0; copies < b.N; {
		b.StopTimer()
		for range 1 << 17 {
			binary.LittleEndian.PutUint64(key, rng.Uint64N(uint64(len(hashes))))
			tab.Touch(key)
		}
		b.StartTimer()
		for c, more := tab.Cut(), true; more; {
			var ref Ref
			if ref, more = c.Next(); ref != 0 {
				block = append(block[:0], tab.Block(ref)...)
				copies++
			}
		}
	}
}

// To expect and to warm concerns where keys are, where others are, and where nothing is; it changes nothing.
func TestWarmOnlyReads(t *testing.T) {
	tab := New()
	tab.Expect(Hash([]byte("uid=1")))
	tab.Warm([]uint64{0, 1, Hash([]byte("uid=1"))})
	var hashes []uint64
	for i := range 1000 {
		key := fmt.Appendf(nil, "uid=%d", i)
		if i%3 > 0 {
			tab.Add(Hash(key), key, bytes.Repeat([]byte{byte(i)}, i))
		}
		hashes = append(hashes, Hash(key))
	}
	dirty := tab.Dirty()
	for _, hash := range hashes {
		tab.Expect(hash)
	}
	tab.Warm(hashes)
	for i := range 1000 {
		key := fmt.Appendf(nil, "uid=%d", i)
		ref, ok := tab.Find(hashes[i], key)
		if ok != (i%3 > 0) {
			t.Fatalf("%s is there: %v", key, ok)
		}
		if ok && !bytes.Equal(tab.Block(ref), bytes.Repeat([]byte{byte(i)}, i)) {
			t.Fatalf("%s has another block", key)
		}
	}
	if tab.Dirty() != dirty {
		t.Errorf("%d changes, want %d", tab.Dirty(), dirty)
	}
}

// The last chunk of a size has the greatest number there is; the next one is of the next size.
func TestASizeThatIsUsedUp(t *testing.T) {
	tab := New()
	h := &tab.heap
	k := classOf(10)
	h.classes[k].next = mostChunks
	ref, c := h.alloc(10)
	if got := int(ref >> numberBits); got != k+1 || len(c) != sizeOf(k+1) {
		t.Errorf("a chunk of class %d and %d bytes, want %d and %d", got, len(c), k+1, sizeOf(k+1))
	}
	if last := Ref(uint32(k)<<numberBits | mostChunks); int(last>>numberBits) != k {
		t.Errorf("the last chunk of class %d is named %x", k, last)
	}
}

// Of a million changes that were all copied otherwise one call of Next once looked at all, while the partition's
// events waited. A call looks at one.
func TestNextLooksAtOneChange(t *testing.T) {
	tab := New()
	const keys = 2*refsInBlock + 10
	for i := range keys {
		tab.Copied(tab.Set(fmt.Appendf(nil, "uid=%d", i), nil))
	}
	last := tab.Set([]byte("last"), nil)
	cut := tab.Cut()
	for i := range keys {
		if ref, more := cut.Next(); ref != 0 || !more || cut.Len() != keys-i {
			t.Fatalf("call %d: chunk %d, more %v, %d left, want 0, true, %d", i, ref, more, cut.Len(), keys-i)
		}
	}
	if ref, more := cut.Next(); ref != last || !more {
		t.Errorf("chunk %d, more %v, want %d, true", ref, more, last)
	}
	if _, more := cut.Next(); more {
		t.Error("there is more behind the last")
	}
	if n := len(tab.spare); n != 3 {
		t.Errorf("%d blocks of the list are kept, want 3", n)
	}
}

// A chunk that was freed is used again, the last one first, and takes no memory beside itself.
func TestFreedChunksAreUsedAgain(t *testing.T) {
	tab := New()
	var refs []Ref
	for i := range 100 {
		refs = append(refs, tab.Set(fmt.Appendf(nil, "uid=%03d", i), make([]byte, 100)))
	}
	for i := range refs {
		tab.Delete(fmt.Appendf(nil, "uid=%03d", i))
	}
	before := tab.heap.bytes
	for i := range refs {
		ref, want := tab.Set(fmt.Appendf(nil, "new=%03d", i), make([]byte, 100)), refs[len(refs)-1-i]
		if ref != want {
			t.Fatalf("key %d is in chunk %d, want %d", i, ref, want)
		}
	}
	if tab.heap.bytes != before {
		t.Errorf("the slabs grew from %d to %d bytes", before, tab.heap.bytes)
	}
}
