package owner

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// suspects are the metric about events that look like a mistake of who made them. The partitions of a
// process share them, so that the log tells each reason once.
type suspects struct {
	*prometheus.CounterVec

	mu   sync.Mutex
	told map[string]bool
}

func newSuspects(r Registry) *suspects {
	s := &suspects{
		CounterVec: r.Counters("event_suspects_total", "Events that count, and look like a mistake, by reason.", "reason"),
		told:       map[string]bool{},
	}
	for _, reason := range event.SuspectReasons {
		s.WithLabelValues(reason) // so that a rate can be had from the beginning
	}
	return s
}

// first reports whether a reason was not told yet.
func (s *suspects) first(reason string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.told[reason]
	s.told[reason] = true
	return first
}

// tellSuspects adds a tally's suspects to the metric, clears them, and logs each reason once.
func (c *core) tellSuspects(t *shard.Tally) {
	if t.Suspects == (event.Suspects{}) {
		return
	}
	for reason, n := range t.Suspects.ByReason() {
		c.env.Metrics.suspects.WithLabelValues(reason).Add(float64(n))
		if c.env.Metrics.suspects.first(reason) {
			c.log.Warn("events look like a mistake; further ones are counted, and not logged", "reason", reason, "advice", event.SuspectAdvice(reason))
		}
	}
	t.Suspects = event.Suspects{}
}
