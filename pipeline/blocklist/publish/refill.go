package publish

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// refill keeps the last record of each key.
type refill struct {
	last map[string]Record
	// Redis holds nothing of this partition: removals, and what ran out, can be left out.
	empty  bool
	before event.Micros // what ended before this moment ran out
}

func newRefill(empty bool, before event.Micros) *refill {
	// An hour more than the grace, since Redis' clock decides, not this one.
	return &refill{last: map[string]Record{}, empty: empty, before: before - event.Hour}
}

func (f *refill) add(records []Record) {
	for _, r := range records {
		if f.empty && f.over(r) {
			delete(f.last, string(r.Key))
			continue
		}
		f.last[string(r.Key)] = r
	}
}

func (f *refill) over(r Record) bool {
	if len(r.Value) == 0 {
		return true
	}
	v, err := verdict.Parse(r.Value)
	return err == nil && v.Until < f.before
}

// records returns what is left in the order of offsets.
func (f *refill) records() []Record {
	return slices.SortedFunc(maps.Values(f.last), func(a, b Record) int { return cmp.Compare(a.Offset, b.Offset) })
}
