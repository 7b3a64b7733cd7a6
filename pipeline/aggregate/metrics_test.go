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
	inMemory(t, func(t *testing.T, r *rig) {
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

// Events above a limit are counted, once each, on whichever partition their keys are, and how long
// after the verdict they happened. A user who stays within the limit adds none.
func TestOvershoot(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		set := compile(t, `
  rules:
    - {name: yearly, match: {api: "x.y"}, limit: 3, per: year, window: calendar, then: {block: until-reset}}
    - {name: watched, match: {api: "x.y"}, limit: 1, per: year, window: calendar, mode: shadow, then: {block: until-reset}}
    - {name: by-address, match: {api: "x.y"}, key: [ip], limit: 4, per: year, window: calendar, then: {block: until-reset}}
`)
		m := r.begin(set, func(c *Config) { c.Registry = prometheus.NewRegistry() })
		is := func(name string, want float64, labels ...string) func() bool {
			return func() bool {
				n, ok := m.sample(t, name, labels...)
				return ok && n == want
			}
		}
		above := "tallygate_overshoot_events_total"
		if !is(above, 0, "rule=yearly", "mode=enforce")() {
			t.Error("before the first event there is no counter")
		}
		const users = 20
		for n, uid := range uids(users) {
			for range 3 {
				r.emit(hit(uid, "x.y"))
			}
			if n%2 == 0 {
				r.emit(hit(uid, "x.y"), hit(uid, "x.y")) // over the limit
			}
		}
		eventually(t, "what is above is counted", is(above, users/2*2, "rule=yearly", "mode=enforce"))
		eventually(t, "what is near is counted", is("tallygate_near_limit_events_total", users, "rule=yearly"))
		eventually(t, "what would be above is counted", is(above, users*2+users/2*2, "rule=watched", "mode=shadow"))
		address := ipOf(7)
		for range 6 { // by several users, of one address: forwarded to its partition
			for _, uid := range uids(2) {
				e := hit(uid, "x.y")
				e.IP = address
				r.emit(e)
			}
		}
		eventually(t, "what is above for an address is counted", is(above, 12-4, "rule=by-address", "mode=enforce"))
		if n, ok := m.sample(t, above, "rule=yearly", "mode=shadow"); !ok || n != 0 {
			t.Errorf("%v of an enforced rule are in shadow mode", n)
		}
		all, err := m.cfg.Registry.(*prometheus.Registry).Gather()
		if err != nil {
			t.Fatal(err)
		}
		delays := map[string]uint64{}
		for _, f := range all {
			for _, s := range f.GetMetric() {
				if f.GetName() == "tallygate_overshoot_delay_seconds" {
					delays[s.GetLabel()[0].GetValue()] = s.GetHistogram().GetSampleCount()
				}
			}
		}
		if len(delays) != 2 || delays["by-address"] != 8 || delays["yearly"] < users {
			t.Errorf("delays measured: %v", delays)
		}
	})
}
