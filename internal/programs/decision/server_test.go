package decision_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/verdict"
)

// The blocklist comes in pages, ordered, each verdict once; a prefix leaves only some keys.
func TestBlocklist(t *testing.T) {
	var all []verdict.Verdict
	for i := range 250 {
		all = append(all, block("r", "uid", fmt.Sprintf("u%03d", i)))
	}
	all = append(all, block("r", "ip", "203.0.113.9"))
	r := newRig(t).blocks(all...)
	type page struct {
		Verdicts []verdict.Verdict `json:"verdicts"`
		Cursor   string            `json:"cursor"`
	}
	list := func(query string) page {
		t.Helper()
		return decode[page](t, r.do(mustRequest(t, http.MethodGet, "/v1/blocklist?"+query)))
	}
	var sizes []int
	var users []string
	for p := list("prefix=uid%3D"); ; p = list("prefix=uid%3D&cursor=" + url.QueryEscape(p.Cursor)) {
		sizes = append(sizes, len(p.Verdicts))
		for _, v := range p.Verdicts {
			users = append(users, v.Key[0].Value)
		}
		if p.Cursor == "" {
			break
		}
	}
	if !slices.Equal(sizes, []int{100, 100, 50}) || !slices.IsSorted(users) || len(slices.Compact(users)) != 250 {
		t.Errorf("pages of %v with %d users", sizes, len(users))
	}
	if p := list("limit=1000"); len(p.Verdicts) != 251 || p.Cursor != "" {
		t.Errorf("all: %d, cursor %q", len(p.Verdicts), p.Cursor)
	}
	if p := list("prefix=nobody"); p.Verdicts == nil || len(p.Verdicts) != 0 {
		t.Errorf("none: %v", p)
	}
	for _, limit := range []string{"0", "1001", "-1", "x"} {
		wantProblem(t, limit, r.do(mustRequest(t, http.MethodGet, "/v1/blocklist?limit="+limit)), http.StatusBadRequest, "1 to 1000")
	}
	for _, query := range []string{"limt=5", "limit=5&limit=6", "prefix=a&uid=42", "="} {
		wantProblem(t, query, r.do(mustRequest(t, http.MethodGet, "/v1/blocklist?"+query)), http.StatusBadRequest, "unknown parameter")
	}
	for _, query := range []string{"prefix=%zz", "limit=5;prefix=a"} { // half of it would be a question about everybody
		wantProblem(t, query, r.do(mustRequest(t, http.MethodGet, "/v1/blocklist?"+query)), http.StatusBadRequest, "the query")
	}
}

func TestReady(t *testing.T) {
	r := newRig(t, func(c *decision.Config) { c.MaxStaleness = time.Minute })
	want := func(about, what string) {
		t.Helper()
		err := r.server.Ready()
		if what == "" && err != nil || what != "" && (err == nil || !strings.Contains(err.Error(), what)) {
			t.Errorf("%s: %v, want %q", about, err, what)
		}
	}
	want("before the first snapshot", "has not been read yet")
	r.table.Heartbeat(0, event.FromTime(time.Now()))
	want("after a heartbeat alone", "has not been read yet")
	r.blocks()
	want("after the snapshot", "")
	r.table.Heartbeat(0, event.FromTime(time.Now().Add(-time.Hour)))
	want("an hour behind: every enforcer is then, and readiness would take all services out of rotation", "")
	if a := r.check(`{"uid": "42", "api": "a"}`); !a.Allowed {
		t.Errorf("checks are answered from what is known: %+v", a)
	}
}

func TestNotReadyWhileTheBlocklistIsRefused(t *testing.T) {
	var refused error
	r := newRig(t, func(c *decision.Config) { c.Refused = func() error { return refused } }).blocks()
	if err := r.server.Ready(); err != nil {
		t.Error(err)
	}
	refused = errors.New("it has 2 shards")
	if err := r.server.Ready(); !errors.Is(err, refused) {
		t.Errorf("%v, want %v", err, refused)
	}
}

func TestMetrics(t *testing.T) {
	r := newRig(t).blocks(
		block("r", "uid", "42"),
		block("l", "uid", "43", func(v *verdict.Verdict) { v.Action = verdict.ActLog }),
		block("soon over", "uid", "47", func(v *verdict.Verdict) { v.Until = event.FromTime(time.Now().Add(time.Millisecond)) }))
	time.Sleep(2 * time.Millisecond) // it has ended, and is not swept yet
	for _, uid := range []string{"42", "42", "43", "44", "45", "46"} {
		r.check(`{"uid": "` + uid + `", "api": "a"}`)
	}
	r.ask("X-Tallygate-Uid: 42")
	r.post("/v1/check/batch", `{"checks": [{"api": "a"}, {"api": "b"}]}`)
	w := httptest.NewRecorder()
	ops.MetricsHandler(r.registry, r.server.Ready).ServeHTTP(w, mustRequest(t, http.MethodGet, "/metrics"))
	for _, line := range []string{
		`tallygate_checks_total{result="allowed"} 5`,
		`tallygate_checks_total{result="block"} 3`,
		`tallygate_checks_total{result="log"} 1`,
		"tallygate_blocklist_entries 2",
		"# TYPE tallygate_blocklist_staleness_seconds gauge",
	} {
		if !strings.Contains(w.Body.String(), line+"\n") {
			t.Errorf("no %s in\n%s", line, w.Body)
		}
	}
	if _, err := decision.New(decision.Config{Table: r.table, Registry: r.registry}); err == nil {
		t.Error("two servers share a registry without an error")
	}
}
