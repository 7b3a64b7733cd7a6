package enforce

import (
	"slices"

	"github.com/tallygate/tallygate/pipeline/enforce/internal/index"
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
	all := []*verdict.Verdict{}
	t.index.Each(dims, func(r index.Record) bool {
		for _, v := range r.Verdicts() {
			if v.InForce(at) && v.Covers(api) {
				all = append(all, v)
			}
		}
		return true
	})
	slices.SortFunc(all, verdict.Compare)
	return all
}

// InForce returns how many verdicts have not ended; Len has those also that did and are not swept yet. It costs a walk over the whole
// table, in steps between which the feed goes on: some 30 ms for a million.
func (t *Table) InForce() int { return t.inForce(now()) }

func (t *Table) inForce(at event.Micros) (count int) {
	t.index.Walk(func(r index.Record) {
		r.Each(func(_ *index.Class, _, until event.Micros) {
			if at < until {
				count++
			}
		})
	}, func() { count = 0 })
	return count
}
