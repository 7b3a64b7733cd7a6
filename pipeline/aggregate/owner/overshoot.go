package owner

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// overshoots are the metrics about events above their limits. In an attack most events are such, so
// partitions add them up in their shards' tallies. A prometheus.Histogram takes only one at a time.
type overshoots struct {
	events, delays *prometheus.Desc

	mu    sync.Mutex
	rules map[string]*shard.Overshoot // by the limit's name
}

func newOvershoots() *overshoots {
	return &overshoots{
		events: prometheus.NewDesc("tallygate_overshoot_events_total", "Events that counted above a limit.", []string{"rule", "mode"}, nil),
		delays: prometheus.NewDesc("tallygate_overshoot_delay_seconds", "Seconds from the beginning of a verdict until an event above its limit, by the event's own time.", []string{"rule"}, nil),
		rules:  map[string]*shard.Overshoot{},
	}
}

// know makes the counters of a set's limits exist, so that they have a rate from the first event
// on.
func (o *overshoots) know(set *rules.Set) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range set.Limits {
		if o.rules[l.Name] == nil {
			o.rules[l.Name] = &shard.Overshoot{}
		}
	}
}

// add takes over what a tally has of a limit, and clears it.
func (o *overshoots) add(limit string, t *shard.Overshoot) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rules[limit] == nil {
		o.rules[limit] = &shard.Overshoot{}
	}
	o.rules[limit].Add(t)
	*t = shard.Overshoot{}
}

// Describe implements prometheus.Collector.
func (o *overshoots) Describe(out chan<- *prometheus.Desc) {
	out <- o.events
	out <- o.delays
}

// Collect implements prometheus.Collector.
func (o *overshoots) Collect(out chan<- prometheus.Metric) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, of := range o.rules {
		for mode, events := range map[verdict.Mode]uint64{verdict.Enforce: of.Events, verdict.Shadow: of.Shadow} {
			out <- prometheus.MustNewConstMetric(o.events, prometheus.CounterValue, float64(events), name, mode.String())
		}
		buckets, count := make(map[float64]uint64, len(shard.OvershootBounds)), uint64(0)
		for i, n := range of.Delays {
			count += n
			if i < len(shard.OvershootBounds) {
				buckets[shard.OvershootBounds[i].Duration().Seconds()] = count
			}
		}
		if count > 0 { // most rules have none: their buckets would be most of the page
			out <- prometheus.MustNewConstHistogram(o.delays, count, of.Delay.Duration().Seconds(), buckets, name)
		}
	}
}
