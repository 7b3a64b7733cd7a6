package tallygate_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// Operators of fifty services see what each rule does there: whom it blocks, and what it denied, by
// middleware and by code.
func TestMetricsByRule(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	blocks(t, server.Addr(), "42")
	reg := prometheus.NewRegistry()
	g, _ := open(t, tallygate.Config{Redis: server.Addr(), Metrics: reg})
	if err := g.WaitReady(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	handler := g.Middleware(httplimit.Options{UID: httplimit.Header("X-User")})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, user := range []string{"42", "43"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-User", user)
		handler.ServeHTTP(httptest.NewRecorder(), r)
		g.Check("search", user)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"tallygate_blocklist_entries": 1, "tallygate_rule_blocked_keys r": 1, "tallygate_rule_shadow_keys r": 0,
		"tallygate_rule_would_deny_total r": 0, "tallygate_rule_checks_total block r": 2,
	} {
		if got, there := values[name]; !there || got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}
