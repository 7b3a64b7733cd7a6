package decision_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// Metrics show that enforcement is off, or that the table is stale and for how long, and what was
// answered by which rule. None names a user.
func TestMetricsOfStaleAndOff(t *testing.T) {
	r := neverFed(t)
	ask := func(uid, api string) { _ = r.check(`{"uid": "` + uid + `", "api": "` + api + `"}`) }
	wantMetrics := func(when string, want map[string]float64) {
		t.Helper()
		got := r.metrics()
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s: %s is %v, want %v", when, name, got[name], value)
			}
		}
	}
	ask("42", "search.query")
	ask("42", "login")
	wantMetrics("stale", map[string]float64{"tallygate_in_doubt": 1, "tallygate_checks_in_doubt_total": 2, "tallygate_enforcement_enabled": 1})
	r.blocks(block("searches", "uid", "42", only("search.query")))
	for r.table.Stale() { // until Run has begun
		runtime.Gosched()
	}
	ask("42", "search.query")
	r.table.SetEnabled(false)
	ask("42", "search.query")
	wantMetrics("off", map[string]float64{
		"tallygate_in_doubt": 0, "tallygate_checks_in_doubt_total": 2, "tallygate_enforcement_enabled": 0,
		"tallygate_checks_total allowed": 2, "tallygate_checks_total block": 1, "tallygate_checks_total unavailable": 1,
		"tallygate_rule_checks_total block searches": 1,
	})
	for name, value := range r.metrics() {
		if strings.Contains(name, "42") || name == "tallygate_in_doubt_seconds_total" && value <= 0 {
			t.Errorf("%s is %v", name, value)
		}
	}
}

// Before a rule leaves shadow mode its owner sees how many keys it would block, and how many checks, of
// whichever protocol, it would have denied.
func TestMetricsOfShadowMode(t *testing.T) {
	shadow := func(v *verdict.Verdict) { v.Mode = verdict.Shadow }
	r := newRig(t).blocks(block("new", "uid", "1", shadow), block("new", "uid", "2", shadow), block("old", "uid", "2"))
	for _, uid := range []string{"1", "2", "3"} {
		_ = r.check(`{"uid": "` + uid + `", "api": "a"}`)
		_ = r.ask("X-Tallygate-Uid: " + uid)
	}
	got := r.metrics()
	for name, want := range map[string]float64{
		"tallygate_rule_blocked_keys new": 0, "tallygate_rule_shadow_keys new": 2, "tallygate_rule_would_deny_total new": 2,
		"tallygate_rule_blocked_keys old": 1, "tallygate_rule_shadow_keys old": 0, "tallygate_rule_would_deny_total old": 0,
		"tallygate_rule_checks_total block old": 2, "tallygate_checks_total allowed": 4,
	} {
		if value, there := got[name]; !there || value != want {
			t.Errorf("%s is %v, want %v", name, value, want)
		}
	}
}

// A block that arrives is in the histogram, from its event until now.
func TestMetricsOfLatency(t *testing.T) {
	r := newRig(t).blocks()
	late := block("searches", "uid", "42", func(v *verdict.Verdict) {
		v.Since -= 2 * event.Minute
		v.Cause = verdict.Cause{Partition: 3, Offset: 9}
	})
	r.table.Apply(0, []verdict.Verdict{late})
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "tallygate_event_to_enforced_seconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		within := map[float64]uint64{}
		for _, b := range h.GetBucket() {
			within[b.GetUpperBound()] = b.GetCumulativeCount()
		}
		if h.GetSampleCount() != 1 || h.GetSampleSum() < 120 || h.GetSampleSum() > 300 || within[60] != 0 || within[300] != 1 {
			t.Errorf("%d in %v s, %v", h.GetSampleCount(), h.GetSampleSum(), within)
		}
		return
	}
	t.Error("there is no such metric")
}

// metrics are all that the server tells, by their names and, behind these, the labels' values.
func (r *rig) metrics() map[string]float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			all[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return all
}
