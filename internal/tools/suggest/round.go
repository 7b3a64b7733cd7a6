package suggest

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
)

// steps are the numbers that people choose, in each power of ten.
var steps = [...]event.Decimal{10, 12, 15, 20, 25, 30, 40, 50, 60, 80}

// roundUp returns the least number that people choose and that is not less. Whole numbers up to ten are all such.
func roundUp(d event.Decimal, whole bool) event.Decimal {
	const few = 10 * event.One
	if whole && d <= few {
		return max(ceil(d), event.One)
	}
	for unit := event.Decimal(1); unit <= rules.MaxLimit/100; unit *= 10 {
		for _, step := range steps {
			if n := step * unit; n >= d && (!whole || n.Whole()) {
				return n
			}
		}
	}
	return rules.MaxLimit
}

// round returns the least number that people choose, not less than a limit. One that is counted by exact times stays
// so: rounded to more than exactTo it would be counted by panes, and might hit more.
func (m *measure) round(limit event.Decimal) event.Decimal {
	n := min(roundUp(limit, !m.sums()), m.most())
	if m.sought.Exact && limit <= exactTo {
		return min(n, exactTo)
	}
	return n
}

// written is a number as rule files have it: 800, 15k, 2.5M.
func written(d event.Decimal) string {
	for _, unit := range []struct {
		suffix string
		size   event.Decimal
	}{{"G", 1_000_000_000}, {"M", 1_000_000}, {"k", 1_000}} {
		const short = 10 // parts of a unit
		if n := unit.size * event.One; d >= n && d%(n/short) == 0 && d >= 10_000*event.One {
			return (d / unit.size).String() + unit.suffix
		}
	}
	return d.String()
}
