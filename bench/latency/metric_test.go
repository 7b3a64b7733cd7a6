package main

import (
	"math"
	"strings"
	"testing"
	"time"
)

const page = `# HELP tallygate_event_to_verdict_seconds …
tallygate_event_to_verdict_seconds_bucket{le="0.002"} 10
tallygate_event_to_verdict_seconds_bucket{le="0.005"} 60
tallygate_event_to_verdict_seconds_bucket{le="0.01"} 99
tallygate_event_to_verdict_seconds_bucket{le="+Inf"} 100
tallygate_event_to_verdict_seconds_sum 0.45
tallygate_event_to_verdict_seconds_count 100
tallygate_events_total{result="counted"} 5
`

func TestHistogram(t *testing.T) {
	h, err := parseHistogram(strings.NewReader(page), metricName)
	if err != nil || h.count() != 100 || h.sum != 0.45 {
		t.Fatalf("%+v, %v", h, err)
	}
	for q, want := range map[float64][2]float64{0.05: {0, 0.002}, 0.5: {0.002, 0.005}, 0.99: {0.005, 0.01}, 1: {0.01, math.Inf(1)}} {
		if above, atMost := h.bucket(q); above != want[0] || atMost != want[1] {
			t.Errorf("the quantile %v is in %v to %v, want %v", q, above, atMost, want)
		}
	}
	if d := h.minus(h); d.count() != 0 || d.sum != 0 || h.count() != 100 {
		t.Errorf("nothing happened, and the difference is %+v", d)
	}
	if _, err := parseHistogram(strings.NewReader("other 1\n"), metricName); err == nil {
		t.Error("a page without the metric has it")
	}
}

// The metric is refused when it does not lie between the verdict's append and its arrival.
func TestAgreement(t *testing.T) {
	h, err := parseHistogram(strings.NewReader(page), metricName)
	if err != nil {
		t.Fatal(err)
	}
	ways := func(append, arrive time.Duration) []*way {
		all := make([]*way, 100)
		for i := range all {
			at := time.UnixMilli(1000)
			w := &way{probe: &probe{}}
			w.event.appended, w.verdict.appended, w.received = at, at.Add(append), at.Add(arrive)
			all[i] = w
		}
		return all
	}
	for about, c := range map[string]struct {
		append, arrive time.Duration
		agree          bool
	}{
		"between":        {3 * time.Millisecond, 9 * time.Millisecond, true},
		"metric too low": {20 * time.Millisecond, 30 * time.Millisecond, false},
		"too high":       {100 * time.Microsecond, 200 * time.Microsecond, false},
	} {
		if err := agree(h, ways(c.append, c.arrive)); (err == nil) != c.agree {
			t.Errorf("%s: %v", about, err)
		}
	}
	if agree(h, ways(3*time.Millisecond, 9*time.Millisecond)[:50]) == nil {
		t.Error("twice as many verdicts as fell agree")
	}
}
