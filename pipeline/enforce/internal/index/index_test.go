package index

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/rig"
	"github.com/tallygate/tallygate/verdict"
)

// indexAgainstAMap changes a small index and a map alike, and compares what is found; after each
// change the invariants hold.
func indexAgainstAMap(t *rapid.T) {
	x := newIndex(false)
	held := map[string]bool{}
	keys := rapid.Custom(func(t *rapid.T) string {
		n := strconv.Itoa(rapid.IntRange(0, 60).Draw(t, "n"))
		return rapid.SampledFrom([]string{"uid=" + n, "attrs.a=" + n + "&uid=u", "uid=long-user-name-" + n}).Draw(t, "key")
	})
	one := func(key string, state verdict.State) []verdict.Verdict {
		return []verdict.Verdict{block("r", key, func(v *verdict.Verdict) { v.State = state })}
	}
	t.Repeat(map[string]func(*rapid.T){
		"add": func(t *rapid.T) {
			for _, key := range rapid.SliceOfN(keys, 1, 12).Draw(t, "keys") {
				x.Apply(0, one(key, verdict.Block))
				held[key] = true
			}
		},
		"clear": func(t *rapid.T) {
			key := keys.Draw(t, "key")
			x.Apply(0, one(key, verdict.Clear))
			delete(held, key)
		},
		"remove": func(t *rapid.T) {
			key := keys.Draw(t, "key")
			named, err := verdict.ParseRecordKey([]byte(key + "|r"))
			if err != nil {
				t.Fatal(err)
			}
			x.Remove(0, &named)
			delete(held, key)
		},
		"replace": func(t *rapid.T) {
			clear(held)
			var all []verdict.Verdict
			for _, key := range rapid.SliceOfN(keys, 0, 40).Draw(t, "keys") {
				all = append(all, one(key, verdict.Block)...)
				held[key] = true
			}
			x.Replace(0, all)
		},
		"sweep": func(*rapid.T) { x.Sweep(t0) },
		"": func(t *rapid.T) {
			if err := verify(x); err != nil {
				t.Fatal(err)
			}
			if x.Len() != len(held) {
				t.Fatalf("%d verdicts, want %d", x.Len(), len(held))
			}
			key := keys.Draw(t, "asked")
			dims, err := event.ParseKey([]byte(key))
			if err != nil {
				t.Fatal(err)
			}
			if found := names(x, dims...); (len(found) > 0) != held[key] {
				t.Fatalf("%s: found %q", key, found)
			}
		},
	})
}

func TestTheIndexAgainstAMap(t *testing.T) { rapid.Check(t, indexAgainstAMap) }

func FuzzIndex(f *testing.F) { f.Fuzz(rapid.MakeFuzz(indexAgainstAMap)) }

// A walk ends also where the writer failed to leave a bucket without the flag, and it has been to
// each bucket once.
func TestWalksEndInAnIndexThatIsFlaggedAllOver(t *testing.T) {
	x := newIndex(false)
	x.Apply(0, []verdict.Verdict{block("r", "uid=42", nil)})
	v := x.View()
	for i := range v.buckets {
		v.buckets[i].tags.Store(v.buckets[i].tags.Load() | overflowed)
	}
	x.w.flagged = len(v.buckets)
	for n := range 100 {
		u, been := UserOf("nobody"+strconv.Itoa(n)), map[uint64]bool{}
		for p := v.Start(u); ; p = v.Next(p) {
			if been[p.at] {
				t.Fatalf("the walk comes to bucket %d again", p.at)
			}
			if been[p.at] = true; p.Last() {
				break
			}
		}
		if len(been) != len(v.buckets) {
			t.Fatalf("the walk ends after %d of %d buckets", len(been), len(v.buckets))
		}
	}
	if _, found := x.User("nobody"); found || names(x, uid("nobody")) != nil {
		t.Error("nobody has a record")
	}
	if _, found := x.User("42"); !found {
		t.Error("a user's record is not found")
	}
	// The last bucket that walks come to is before the one that they begin in.
	b, slot, _ := x.w.find(v.shapes[shapeUID], []event.Dim{uid("42")})
	hash := UserOf("42").hash
	last := &v.buckets[(v.buckets.place(hash)+uint64(len(v.buckets))-1)%uint64(len(v.buckets))]
	last.refs[0].Store(b.refs[slot].Load())
	last.setTag(0, tagOf(hash))
	b.setTag(slot, 0)
	if b, _, _ := x.w.find(v.shapes[shapeUID], []event.Dim{uid("42")}); b != last {
		t.Error("the writer does not find a record in the walk's last bucket")
	}
	if found, ok := byPieces(x, "42"); len(names(x, uid("42"))) != 1 || len(byUser(x, "42")) != 1 || !ok || len(found) != 1 {
		t.Error("a record in the walk's last bucket is not found")
	}
	x.Apply(0, []verdict.Verdict{block("r", "uid=43", nil)}) // the writer's walk, which makes the buckets anew
	if err := verify(x); err != nil {
		t.Error(err)
	}
}

// One insert could flag the last two buckets that were not flagged.
func TestInvariantsUnderChurn(t *testing.T) {
	c := rig.Churn{R: rand.New(rand.NewPCG(testrun.Seed(t), 0)), Since: t0}
	x := newIndex(false)
	for n := range 30_000 {
		x.Apply(0, []verdict.Verdict{c.Next()})
		if err := verify(x); err != nil || x.Len() != len(c.Held) {
			t.Fatalf("after %d changes: %v, %d verdicts, want %d", n+1, err, x.Len(), len(c.Held))
		}
	}
}
