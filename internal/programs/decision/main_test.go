package decision_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/api"
	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/internal/testing/apitest"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// rig is a decision server and the table that it answers from.
type rig struct {
	t        *testing.T
	table    *enforce.Table
	server   *decision.Server
	registry *prometheus.Registry
	handler  http.Handler
}

func newRig(t *testing.T, change ...func(*decision.Config)) *rig {
	t.Helper()
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return newRigOf(t, table, change...)
}

// newRigOf is newRig with a table of one's own.
func newRigOf(t *testing.T, table *enforce.Table, change ...func(*decision.Config)) *rig {
	t.Helper()
	var err error
	r := &rig{t: t, table: table, registry: prometheus.NewRegistry()}
	cfg := decision.Config{Table: table, Registry: r.registry}
	for _, c := range change {
		c(&cfg)
	}
	if r.server, err = decision.New(cfg); err != nil {
		t.Fatal(err)
	}
	r.handler = apitest.Open(t, apidocs.Enforcer).Handler(t, r.server.Handler(http.NewServeMux()))
	return r
}

// block is an enforced block of five minutes; alter changes it.
func block(rule, dim, value string, alter ...func(*verdict.Verdict)) verdict.Verdict {
	now := event.FromTime(time.Now())
	v := verdict.Verdict{
		Rule: rule, Key: []event.Dim{{Name: dim, Value: value}}, Action: verdict.ActBlock, APIs: []string{"*"},
		Count: 101 * event.One, Limit: 100 * event.One, Since: now, Until: now + 5*event.Minute, Seq: 7,
	}
	for _, a := range alter {
		a(&v)
	}
	return v
}

func (r *rig) blocks(all ...verdict.Verdict) *rig {
	r.table.Replace(0, all)
	r.table.Heartbeat(0, event.FromTime(time.Now()))
	return r
}

func (r *rig) do(req *http.Request) *http.Response {
	r.t.Helper()
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	return w.Result()
}

func (r *rig) post(path, body string) *http.Response {
	r.t.Helper()
	return r.do(httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
}

// decode reads an answer of JSON.
func decode[T any](t *testing.T, resp *http.Response) (v T) {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return v
}

func (r *rig) check(body string) api.Decision {
	r.t.Helper()
	resp := r.post("/v1/check", body)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" {
		body, _ := io.ReadAll(resp.Body)
		r.t.Fatalf("%s, %s: %s", resp.Status, resp.Header.Get("Content-Type"), body)
	}
	return decode[api.Decision](r.t, resp)
}

// wantProblem checks that an answer is problem+json with a detail that says what.
func wantProblem(t *testing.T, about string, resp *http.Response, status int, what string) {
	t.Helper()
	p := decode[struct {
		Title, Detail string
		Status        int
	}](t, resp)
	if resp.StatusCode != status || p.Status != status || p.Title == "" || resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s: %d, %s, %+v; want %d", about, resp.StatusCode, resp.Header.Get("Content-Type"), p, status)
	}
	if !strings.Contains(p.Detail, what) {
		t.Errorf("%s: the detail %q does not say %q", about, p.Detail, what)
	}
}
