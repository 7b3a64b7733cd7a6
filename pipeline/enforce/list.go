package enforce

import (
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/index"
	"github.com/tallygate/tallygate/verdict"
)

// Verdicts returns all verdicts in force for someone with these dimensions and this API, shadow
// ones and notices included. The verdict that would decide comes first.
func (t *Table) Verdicts(api string, dims []event.Dim) []*verdict.Verdict {
	return t.VerdictsAt(t.Now(), api, dims)
}

// VerdictsAt is Verdicts at a moment.
func (t *Table) VerdictsAt(at event.Micros, api string, dims []event.Dim) []*verdict.Verdict {
	all := []*verdict.Verdict{}
	t.index.Each(api, dims, func(r index.Record) bool {
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

// InForce returns how many verdicts have not ended; Len also counts ended ones that are not swept
// yet. It walks over the whole table, in steps between which the feed continues: some 30 ms for a
// million.
func (t *Table) InForce() int { return inForce(&t.index, t.cfg.now()) }

func inForce(x *index.Index, at event.Micros) (count int) {
	x.Walk(func(r index.Record) {
		r.Each(func(_ *index.Class, _, until event.Micros) {
			if at < until {
				count++
			}
		})
	}, func() { count = 0 })
	return count
}
