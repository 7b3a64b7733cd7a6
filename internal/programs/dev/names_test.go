package dev

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/api"
)

// An aggregator that is busy names what no rule counts a little later. One that never does is not waited for for ever.
func TestNamesOfWhatDidNothingAreWaitedFor(t *testing.T) {
	registry := prometheus.NewRegistry()
	results := prometheus.NewCounterVec(prometheus.CounterOpts{Name: resultOf}, []string{"result"})
	registry.MustRegister(results)
	results.WithLabelValues(unmatchedOf).Add(4)
	answers := [][]api.UnmatchedEvents{nil, {{API: "login", Outcome: "denied", Events: 4}}, nil, nil, nil, nil, nil}
	n := notes{unmatched: func(context.Context) (list []api.UnmatchedEvents) {
		list, answers = answers[0], answers[1:]
		return list
	}}
	wants := []string{"", "4 events match no rule (login denied: 4); tallygate trace says why", "", "", "", "", "5 events match no rule; tallygate trace says why", ""}
	for i, want := range wants {
		if i == 3 {
			results.WithLabelValues(unmatchedOf).Inc()
		}
		if got := strings.Join(n.lines(t.Context(), registry), "\n"); got != want {
			t.Errorf("summary %d tells %q, want %q", i, got, want)
		}
	}
}
