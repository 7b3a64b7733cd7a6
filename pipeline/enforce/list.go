package enforce

import (
	"slices"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Verdicts returns all that is in force for someone with these dimensions and this API: shadow ones
// and notices too, first those that would decide.
func (t *Table) Verdicts(api string, dims []event.Dim) []*verdict.Verdict {
	return t.VerdictsAt(t.Now(), api, dims)
}

// VerdictsAt is Verdicts at a moment.
func (t *Table) VerdictsAt(at event.Micros, api string, dims []event.Dim) []*verdict.Verdict {
	type one struct {
		held
		key []event.Dim
	}
	var found []one
	for _, k := range t.keys(dims) {
		for _, h := range k.held {
			if h.inForce(at) && h.class.verdict.Covers(api) {
				found = append(found, one{h, k.dims})
			}
		}
	}
	slices.SortFunc(found, func(a, b one) int {
		return verdict.CompareUntil(&a.class.verdict, a.until, &b.class.verdict, b.until)
	})
	all := make([]*verdict.Verdict, len(found))
	for i, f := range found {
		all[i] = f.full(f.key)
	}
	return all
}

// keyed is a key and its verdicts.
type keyed struct {
	dims []event.Dim
	held []held
}

// keys returns what the table has on each key of these dimensions.
func (t *Table) keys(dims []event.Dim) (all []keyed) {
	dims = canonical(dims)
	addr := new(address)
	t.each(dims, func(v *view, s *shape, r record) bool {
		q := query{dims: dims, addr: addr}
		k := keyed{held: r.appendList(nil, v.classes)}
		for _, name := range s.names {
			value := q.value(name)
			k.dims = append(k.dims, event.Dim{Name: name, Value: value.text + string(value.bytes)})
		}
		same := func(o keyed) bool { return slices.Equal(o.dims, k.dims) }
		if i := slices.IndexFunc(all, same); i >= 0 {
			all[i] = k
		} else {
			all = append(all, k)
		}
		return true
	})
	return all
}

// InForce returns how many verdicts have not ended; Len has those also that did and are not swept yet. It costs a walk over the whole
// table, in steps between which the feed goes on: some 30 ms for a million.
func (t *Table) InForce() int { return t.inForce(now()) }

func (t *Table) inForce(at event.Micros) (count int) {
	t.walkRecords(func(_ *view, r record) {
		r.walk(func(h heading) {
			if at < h.until {
				count++
			}
		})
	}, func() { count = 0 })
	return count
}

// all calls do for every key, as walkRecords does. The key is not to be kept, unless in a verdict.
func (t *Table) all(do func(key []event.Dim, list []held), again func()) {
	t.walkRecords(func(v *view, r record) {
		do(v.shapes[r.shape].dims(r.key), r.appendList(nil, v.classes))
	}, again)
}

// walkRecords calls do for the record of every key, some thousands under the table's lock. When the index is made anew meanwhile it says so by
// again, and begins again.
func (t *Table) walkRecords(do func(*view, record), again func()) {
	const step = 8192 // buckets
	var buckets []bucket
	for from := 0; ; from += step {
		t.mu.Lock()
		v := t.store.view
		if buckets == nil || &buckets[0] != &v.buckets[0] {
			buckets, from = v.buckets, 0
			again()
		}
		for i := from; i < min(from+step, len(buckets)); i++ {
			for j := range buckets[i].refs {
				if buckets[i].tag(j) != 0 {
					do(v, splitRecord(v.record(buckets[i].refs[j].Load())))
				}
			}
		}
		t.mu.Unlock()
		if from+step >= len(buckets) {
			return
		}
	}
}
