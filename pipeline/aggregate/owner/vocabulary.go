package owner

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
)

// mismatches are the metric about events that contradict the vocabulary. Names come from callers, so that
// only the first ones have a counter of their own. The partitions of a process share them.
type mismatches struct {
	desc *prometheus.Desc

	mu     sync.Mutex
	events map[rules.Mismatch]uint64
	names  map[string]int // by what a mismatch is about
}

func newMismatches() *mismatches {
	return &mismatches{
		desc: prometheus.NewDesc("tallygate_vocabulary_mismatches_total", "Events that contradict what the rule file declares, by what is wrong and the name.",
			[]string{"what", "name"}, nil),
		events: map[rules.Mismatch]uint64{}, names: map[string]int{},
	}
}

// add counts events. It returns the mismatch as it is told, and whether that is a new one.
func (s *mismatches) add(m rules.Mismatch, n uint64) (told rules.Mismatch, isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events[m] == 0 && m.Name != rules.OtherNames {
		if s.names[m.What] >= rules.MaxMismatchNames {
			m.Name = rules.OtherNames
		} else {
			s.names[m.What]++
		}
	}
	isNew = s.events[m] == 0
	s.events[m] += n
	return m, isNew
}

// Describe implements prometheus.Collector.
func (s *mismatches) Describe(out chan<- *prometheus.Desc) { out <- s.desc }

// Collect implements prometheus.Collector.
func (s *mismatches) Collect(out chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for m, n := range s.events {
		out <- prometheus.MustNewConstMetric(s.desc, prometheus.CounterValue, float64(n), m.What, m.Name)
	}
}

// tellMismatches adds a tally's mismatches to the metric, clears them, and logs each new name once.
func (c *core) tellMismatches(t *shard.Tally) {
	for m, n := range t.Mismatches {
		if told, isNew := c.env.Metrics.mismatches.add(m, n); isNew {
			c.log.Warn("events contradict the vocabulary of the rules", "what", told.What, "name", told.Name)
		}
	}
	clear(t.Mismatches)
}
