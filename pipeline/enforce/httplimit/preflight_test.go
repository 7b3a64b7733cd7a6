package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
	"github.com/tallygate/tallygate/verdict"
)

type counted []string

// Emit leaves out what a denial tells.
func (c *counted) Emit(e event.Event) bool {
	if e.Outcome != event.OutcomeLimited {
		*c = append(*c, e.API)
	}
	return true
}

// Whoever is blocked for all APIs saw failures of CORS instead of a 429: the browser's question was denied.
// With Skip it is not, nor is it counted. Without, it is a request like others.
func TestPreflights(t *testing.T) {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	now := event.FromTime(time.Now())
	table.Replace(0, []verdict.Verdict{{Rule: "r", Key: []event.Dim{{Name: "ip", Value: "192.0.2.1"}}, Action: verdict.ActBlock, APIs: []string{"*"},
		Limit: event.One, Since: now, Until: now + event.Hour}})
	preflight := []string{"Origin", "Access-Control-Request-Method"}
	for _, c := range []struct {
		about, method, from string
		headers             []string
		skip                func(*http.Request) bool
		status              int
		events              int
	}{
		{"a preflight", http.MethodOptions, "192.0.2.1:1", preflight, httplimit.Preflight, 200, 0},
		{"of who is not blocked", http.MethodOptions, "192.0.2.2:1", preflight, httplimit.Preflight, 200, 0},
		{"without Skip", http.MethodOptions, "192.0.2.1:1", preflight, nil, 429, 0},
		{"without Skip, of who is not blocked", http.MethodOptions, "192.0.2.2:1", preflight, nil, 200, 1},
		{"what follows", http.MethodGet, "192.0.2.1:1", preflight, httplimit.Preflight, 429, 0},
		{"no origin", http.MethodOptions, "192.0.2.1:1", preflight[1:], httplimit.Preflight, 429, 0},
		{"no question", http.MethodOptions, "192.0.2.1:1", preflight[:1], httplimit.Preflight, 429, 0},
	} {
		var emitted counted
		handler := httplimit.Middleware(table, httplimit.Options{IP: httplimit.ClientIP(), Skip: c.skip, Events: &emitted})(
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		r := httptest.NewRequest(c.method, "/search", nil)
		r.RemoteAddr = c.from
		for _, name := range c.headers {
			r.Header.Set(name, "GET")
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != c.status || len(emitted) != c.events {
			t.Errorf("%s: %d, and %v is emitted", c.about, w.Code, emitted)
		}
	}
}
