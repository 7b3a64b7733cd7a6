package owner

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
)

// A broker's clock that is ahead does not make latencies negative, and recovered verdicts do not
// count.
func TestLatenessIsNeverNegative(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	m.published(&shard.Published{Value: []byte("{}"), Broker: now() + event.Minute})
	m.published(&shard.Published{Value: []byte("{}"), Broker: event.NoTime})
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != "tallygate_event_to_verdict_seconds" {
			continue
		}
		if h := f.GetMetric()[0].GetHistogram(); h.GetSampleCount() != 1 || h.GetSampleSum() != 0 {
			t.Errorf("%d measured, in sum %f", h.GetSampleCount(), h.GetSampleSum())
		}
		return
	}
	t.Fatal("there is no such metric")
}

// Partitions add up what is above a limit; the counters of a limit are there before the first event.
func TestOvershootIsAddedUp(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, again := NewMetrics(reg), NewMetrics(reg) // of another Aggregator in the process
	set, err := rules.Compile("r.yaml", []byte(`{apiVersion: tallygate.dev/v1, kind: RuleSet, metadata: {name: a}, spec: {rules: [
		{name: r, match: {api: x}, limit: 1, per: 1h, then: {block: 1h}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, is := range []*Metrics{m, again} {
		v := &Rules{Set: set, Matches: is.MatchesOf(set)}
		if is == m {
			if got := overshoot(t, reg); got != "r near: 0\nr enforce: 0\nr shadow: 0\n" {
				t.Errorf("before the first event: %s", got)
			}
		}
		of := shard.Overshoot{Events: 3, Shadow: 1, Delay: 5 * event.Second}
		of.Delays[0], of.Delays[len(shard.OvershootBounds)] = 1, 1
		tally := shard.Tally{Matches: []uint64{4}, Overshoot: []shard.Overshoot{of}, Near: []uint64{2}}
		is.tell(&tally, v)
		is.tell(&tally, v) // it is empty now
	}
	if got, want := overshoot(t, reg), "r near: 4\nr enforce: 6\nr shadow: 2\nr: 4 in 10 s, 2 within 0.001 s, 2 within 60 s\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func overshoot(t *testing.T, reg *prometheus.Registry) (text string) {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var histograms string
	for _, f := range all {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "tallygate_near_limit_events_total":
				text += fmt.Sprintf("%s near: %v\n", m.GetLabel()[0].GetValue(), m.GetCounter().GetValue())
			case "tallygate_overshoot_events_total":
				text += fmt.Sprintf("%s %s: %v\n", m.GetLabel()[1].GetValue(), m.GetLabel()[0].GetValue(), m.GetCounter().GetValue())
			case "tallygate_overshoot_delay_seconds":
				h := m.GetHistogram()
				first, last := h.GetBucket()[0], h.GetBucket()[len(h.GetBucket())-1]
				histograms += fmt.Sprintf("%s: %d in %v s, %d within %v s, %d within %v s\n", m.GetLabel()[0].GetValue(), h.GetSampleCount(), h.GetSampleSum(),
					first.GetCumulativeCount(), first.GetUpperBound(), last.GetCumulativeCount(), last.GetUpperBound())
			}
		}
	}
	return text + histograms
}
