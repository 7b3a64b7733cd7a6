package enforce

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Verdicts returns all that is in force for someone with these dimensions and this API: shadow ones
// and notices too, first those that would decide. They are not to be changed.
func (t *Table) Verdicts(api string, dims []event.Dim) []*verdict.Verdict {
	return t.VerdictsAt(t.Now(), api, dims)
}

// VerdictsAt is Verdicts at a moment.
func (t *Table) VerdictsAt(at event.Micros, api string, dims []event.Dim) []*verdict.Verdict {
	x := t.index.Load()
	if len(dims) == 0 {
		return nil
	}
	var found []*held
	q := query{dims: dims, addr: new(address)}
	for _, s := range x.shapes {
		e := x.find(s, &q)
		if e == nil {
			continue
		}
		for i := range e.held {
			if h := &e.held[i]; h.inForce(at) && h.verdict.Covers(api) {
				found = append(found, h)
			}
		}
	}
	slices.SortFunc(found, func(a, b *held) int {
		if c := cmp.Compare(a.rank(), b.rank()); c != 0 {
			return c
		}
		if a.stronger(b) {
			return -1
		}
		return 1
	})
	all := make([]*verdict.Verdict, len(found))
	for i, h := range found {
		all[i] = h.verdict
	}
	return all
}

// rank puts what decides first, then blocks in shadow mode, then notices.
func (h *held) rank() int {
	switch {
	case h.decides:
		return 0
	case h.verdict.State == verdict.Block:
		return 1
	}
	return 2
}

// List returns up to limit verdicts in force whose record keys begin with prefix and come after
// cursor, in the order of their record keys. next is the cursor of the next page, "" when there is none. A page
// costs a walk over the whole table. The verdicts are not to be changed.
func (t *Table) List(prefix, cursor string, limit int) (page []*verdict.Verdict, next string) {
	type named struct {
		key     string
		verdict *verdict.Verdict
	}
	var found []named
	at := now()
	var key []byte
	for e := range t.index.Load().all {
		for _, h := range e.held {
			key = verdict.AppendRecordKey(key[:0], h.verdict)
			if h.inForce(at) && string(key) > cursor && strings.HasPrefix(string(key), prefix) {
				found = append(found, named{string(key), h.verdict})
			}
		}
	}
	slices.SortFunc(found, func(a, b named) int { return strings.Compare(a.key, b.key) })
	if limit >= 0 && len(found) > limit {
		if found = found[:limit]; limit > 0 {
			next = found[limit-1].key
		}
	}
	for _, f := range found {
		page = append(page, f.verdict)
	}
	return page, next
}
