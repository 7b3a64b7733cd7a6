package aggregate

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The histogram of verdict latency has each verdict once, with a possible time: at least 0, and at
// most the time that has passed. A verdict republished by a takeover is not late by the duration of
// the takeover.
func TestEventToVerdictSeconds(t *testing.T) {
	everyKafka(t, func(t *testing.T, r *rig) {
		set := compile(t, yearly)
		reg := prometheus.NewRegistry()
		m := r.begin(set, func(c *Config) { c.Registry = reg })
		began := time.Now()
		const users = 50
		for _, uid := range uids(users) {
			for range 5 {
				r.emit(hit(uid, "x.y"))
			}
		}
		eventually(t, "every verdict is measured", func() bool {
			n, _ := lateness(t, reg)
			return n == users
		})
		_, sum := lateness(t, reg)
		if most := users * time.Since(began).Seconds(); sum < 0 || sum > most {
			t.Errorf("%d verdicts took %.3f s, and at most %.3f s have passed", users, sum, most)
		}
		m.end(t)
		if n, _ := lateness(t, reg); n != users {
			t.Errorf("%d verdicts are measured, %d were issued", n, users)
		}
	})
}

func lateness(t *testing.T, reg *prometheus.Registry) (count uint64, sum float64) {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == "tallygate_event_to_verdict_seconds" {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleCount(), h.GetSampleSum()
		}
	}
	t.Fatal("there is no such metric")
	return 0, 0
}

// sample is the value of a counter or gauge of the member's with these labels, NAME=VALUE; false
// when there is none.
func (m *member) sample(t *testing.T, name string, labels ...string) (value float64, ok bool) {
	t.Helper()
	all, err := m.cfg.Registry.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		for _, s := range f.GetMetric() {
			has := map[string]bool{}
			for _, l := range s.GetLabel() {
				has[l.GetName()+"="+l.GetValue()] = true
			}
			if slices.ContainsFunc(labels, func(l string) bool { return !has[l] }) {
				continue
			}
			return s.GetCounter().GetValue() + s.GetGauge().GetValue(), true
		}
	}
	return 0, false
}
