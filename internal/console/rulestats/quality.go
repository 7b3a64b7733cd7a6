package rulestats

import (
	"cmp"
	"slices"
)

// Rated is something that events say or do, and how often.
type Rated struct {
	Name  string  // a result, a reason, a client
	What  string  // of a mismatch: api, attr, type or value; of a skip: the rule
	Rate  float64 // a second
	Total float64 // since the console began to look
}

// Quality sums the aggregators' numbers about events.
type Quality struct {
	Results    []Rated // by the outcome
	Malformed  []Rated // records, by the reason
	Suspects   []Rated // by the reason
	Misplaced  []Rated // by the client
	Mismatches []Rated // by what they contradict
	Skips      []Rated // by the rule and the reason
}

// QualityOf reads aggregators' polls.
func QualityOf(t *Tracker) Quality {
	return Quality{
		Results:    t.rated("tallygate_events_total", "result", ""),
		Malformed:  t.rated("tallygate_event_decode_errors_total", "reason", ""),
		Suspects:   t.rated("tallygate_event_suspects_total", "reason", ""),
		Misplaced:  t.rated("tallygate_events_misplaced_total", "client", ""),
		Mismatches: t.rated("tallygate_vocabulary_mismatches_total", "name", "what"),
		Skips:      t.rated("tallygate_rule_skips_total", "reason", "rule"),
	}
}

// rated lists a metric's series that have ever counted anything, the most frequent first.
func (t *Tracker) rated(metric, name, what string) []Rated {
	var out []Rated
	for _, s := range t.Of(metric) {
		if t.everCounted(&s) {
			out = append(out, Rated{Name: s.Labels[name], What: s.Labels[what], Rate: s.Rate, Total: s.Total})
		}
	}
	slices.SortStableFunc(out, func(a, b Rated) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Total, a.Total))
	})
	return out
}

// everCounted reports whether a program has counted anything there, also before the first poll.
func (t *Tracker) everCounted(s *Series) bool {
	id := seriesID(s.Metric, s.Labels)
	for _, m := range t.last {
		if m.values[id] > 0 {
			return true
		}
	}
	return s.Total > 0
}
