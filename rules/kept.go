package rules

import "github.com/tallygate/tallygate/event"

// keptForever bounds how long records are kept of blocks that have no end: a hundred years.
const keptForever = 36_500 * event.Day

// LongestBlock returns how long a verdict of the set may last, as one event issues it, and the limit
// that issues it. For so long its record has to be kept.
func (s *Set) LongestBlock() (longest event.Micros, limit string) {
	for _, l := range s.Limits {
		d := min(l.Rule.Then.Longest(), keptForever)
		if l.Rule.Then.UntilReset {
			d = l.PerMax
		}
		if d > longest {
			longest, limit = d, l.Name
		}
	}
	return longest, limit
}

// LongestStrict returns the longest window of the set's strict limits, and the limit. For so long the
// records of where keys stand under it have to be kept.
func (s *Set) LongestStrict() (longest event.Micros, limit string) {
	for _, r := range s.Strict() {
		for _, l := range r.Limits {
			if l.PerMax > longest {
				longest, limit = l.PerMax, l.Name
			}
		}
	}
	return longest, limit
}

// LongestVerdict returns how long the records of verdicts have to be kept for the set.
func (s *Set) LongestVerdict() event.Micros {
	block, _ := s.LongestBlock()
	strict, _ := s.LongestStrict()
	return max(block, strict)
}
