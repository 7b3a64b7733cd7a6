package owner

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/event"
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
