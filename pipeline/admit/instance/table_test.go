package instance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
)

// Two keys with one hash are two keys, whichever leaves first.
func TestKeysWithOneHash(t *testing.T) {
	for _, order := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "a", "c"}} {
		tab := newTable(1)
		p := &tab.parts[0]
		for i, key := range order {
			p.touch(tab.add(p, 16, []byte(key)), event.Micros(i))
		}
		left := slices.Clone(order)
		for len(left) > 0 {
			for _, key := range order {
				if e := p.find(16, []byte(key)); (e != nil) != slices.Contains(left, key) || e != nil && e.key != key {
					t.Fatalf("%v, with %v left: %s is %v", order, left, key, e)
				}
			}
			tab.drop(p)
			left = left[1:]
		}
		if len(p.entries) != 0 || tab.keys.Load() != 0 || tab.drop(p) {
			t.Errorf("%v: %d keys, %d entries", order, tab.keys.Load(), len(p.entries))
		}
	}
}

// The order in which parts are locked stays when that of the rules changes: two requests, by the rules before
// and after, never wait for each other.
func TestPartsAreLockedInOneOrder(t *testing.T) {
	const a = "    - {name: a, match: {api: x}, limit: 5, per: 1m, scope: instance}\n"
	const b = "    - {name: b, match: {api: x}, limit: 5, per: 1m, scope: instance}\n"
	compile := func(list string) *rules.Set {
		set, err := rules.Compile("x.yaml", []byte("apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: test}\nspec:\n  rules:\n"+list))
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	x := New(compile(a+b), Options{})
	x.Load(compile(b + a))
	v := x.current.Load()
	w := v.workers.Get().(*worker)
	w.lock(v, w.requests.Wants(&event.Event{API: "x", UID: "42", Cost: event.One}, 0))
	if w.tries[0].Name != "a" || w.tries[1].Name != "b" || w.tries[0].counters.id >= w.tries[1].counters.id {
		t.Errorf("%s is locked before %s", w.tries[0].Name, w.tries[1].Name)
	}
	w.settle(0, false)
}

// With a table of a few keys the one that was not used for longest leaves, in whichever part it is.
func TestExactlyTheLeastRecentlyUsedLeaves(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	tab := newTable(1)
	tab.resize(60)
	var recent []string // the last one was used last
	for now := event.Micros(1); now < 20_000; now++ {
		key := fmt.Sprint("key", r.IntN(100))
		p, hash := tab.part([]byte(key))
		e := p.find(hash, []byte(key))
		if i := slices.Index(recent, key); (e != nil) != (i >= 0) {
			t.Fatalf("at %d %s is there: %t, want %t", now, key, e != nil, i >= 0)
		} else if i >= 0 {
			recent = slices.Delete(recent, i, i+1)
		} else {
			e = tab.add(p, hash, []byte(key))
		}
		p.touch(e, now)
		tab.shrink()
		if recent = append(recent, key); len(recent) > 60 {
			recent = recent[1:]
		}
	}
}
