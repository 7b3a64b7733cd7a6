package enforce

import (
	"fmt"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// check returns which invariant of the index and the records is broken; nil is none.
func (s *store) check() error {
	v := s.view
	entries, verdicts, flagged, live := 0, 0, 0, 0
	for i := range v.buckets {
		if v.buckets[i].tags.Load()&overflowed != 0 {
			flagged++
		}
		for j := range v.buckets[i].refs {
			if v.buckets[i].tag(j) == 0 {
				continue
			}
			ref := v.buckets[i].refs[j].Load()
			rec := v.record(ref)
			if v.buckets[i].tag(j) != tagOf(s.hashOf(rec)) {
				return fmt.Errorf("bucket %d, slot %d: the tag is not that of its key", i, j)
			}
			if slot := s.slotOf(ref, rec); slot != &v.buckets[i].refs[j] {
				return fmt.Errorf("bucket %d, slot %d: its key is not found there", i, j)
			}
			r := splitRecord(rec)
			rest := r.walk(func(heading) { verdicts++ })
			live += roundUp(len(rec) - len(rest))
			entries++
		}
	}
	if flagged != s.flagged || flooded(flagged, len(v.buckets)) {
		return fmt.Errorf("%d of %d buckets are flagged, the store counts %d: readers walk too far", flagged, len(v.buckets), s.flagged)
	}
	if entries != s.entries || verdicts != s.verdicts || live != s.live {
		return fmt.Errorf("%d entries, %d verdicts, %d bytes; the store counts %d, %d, %d", entries, verdicts, live, s.entries, s.verdicts, s.live)
	}
	return nil
}

// indexAgainstAMap changes a small table and a map alike, and compares what checks answer; after each change the invariants hold.
func indexAgainstAMap(t *rapid.T) {
	table, err := NewTable(Config{})
	if err != nil {
		t.Fatal(err)
	}
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
				table.Apply(0, one(key, verdict.Block))
				held[key] = true
			}
		},
		"clear": func(t *rapid.T) {
			key := keys.Draw(t, "key")
			table.Apply(0, one(key, verdict.Clear))
			delete(held, key)
		},
		"remove": func(t *rapid.T) {
			key := keys.Draw(t, "key")
			table.Remove(0, []byte(key+"|r"))
			delete(held, key)
		},
		"replace": func(t *rapid.T) {
			clear(held)
			var all []verdict.Verdict
			for _, key := range rapid.SliceOfN(keys, 0, 40).Draw(t, "keys") {
				all = append(all, one(key, verdict.Block)...)
				held[key] = true
			}
			table.Replace(0, all)
		},
		"sweep": func(*rapid.T) { table.sweep(now()) },
		"": func(t *rapid.T) {
			if err := table.store.check(); err != nil {
				t.Fatal(err)
			}
			if table.Len() != len(held) {
				t.Fatalf("%d verdicts, want %d", table.Len(), len(held))
			}
			key := keys.Draw(t, "asked")
			dims, err := event.ParseKey([]byte(key))
			if err != nil {
				t.Fatal(err)
			}
			if d := table.CheckDimsAt(t0, "a", dims); d.Allowed == held[key] {
				t.Fatalf("%s: allowed %v", key, d.Allowed)
			}
		},
	})
}

func TestTheIndexAgainstAMap(t *testing.T) { rapid.Check(t, indexAgainstAMap) }

func FuzzIndex(f *testing.F) { f.Fuzz(rapid.MakeFuzz(indexAgainstAMap)) }

// A walk ends also where the writer failed to leave a bucket without the flag.
func TestWalksEndInAnIndexThatIsFlaggedAllOver(t *testing.T) {
	table := newTable(t)
	table.Apply(0, []verdict.Verdict{block("r", "uid=42", nil)})
	table.clock.Store(int64(t0))
	for i := range table.store.view.buckets {
		b := &table.store.view.buckets[i]
		b.tags.Store(b.tags.Load() | overflowed)
	}
	table.store.flagged = len(table.store.view.buckets)
	for range 100 {
		if !table.Check("a", "nobody").Allowed || !table.CheckDims("a", []event.Dim{{Name: "uid", Value: "nobody"}}).Allowed {
			t.Fatal("nobody is denied")
		}
	}
	if table.Check("a", "42").Allowed {
		t.Error("whoever is blocked is let through")
	}
	table.Apply(0, []verdict.Verdict{block("r", "uid=43", nil)}) // the writer's walk, which makes the index anew
	if err := table.store.check(); err != nil {
		t.Error(err)
	}
}
