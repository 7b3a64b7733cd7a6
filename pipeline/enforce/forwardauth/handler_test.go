package forwardauth_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
	"github.com/tallygate/tallygate/verdict"
)

// blocked is a handler on a table in which user 42 may not use these APIs.
func blocked(t testing.TB, apis ...string) *forwardauth.Handler {
	t.Helper()
	h, err := forwardauth.New(forwardauth.Config{Decider: tableOf(t, apis...)})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func tableOf(t testing.TB, apis ...string) *enforce.Table {
	t.Helper()
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	now := event.FromTime(time.Now())
	table.Replace(0, []verdict.Verdict{{
		Rule: "card-testing-detector-v2", Key: []event.Dim{{Name: "uid", Value: "42"}}, Action: verdict.ActBlock, APIs: apis,
		Limit: 100 * event.One, Since: now, Until: now + 5*event.Minute,
	}})
	return table
}

func ask(h http.Handler, method, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "http://tallygate"+target, nil)
	r.Header.Set("X-Tallygate-Uid", "42")
	h.ServeHTTP(w, r)
	return w
}

// nginx's auth_request takes 401 and 403 only; the rest of the answer is the same.
func TestDeniedWithAnotherStatus(t *testing.T) {
	h := blocked(t, "*")
	for query, status := range map[string]int{"": 429, "?denied=403": 403, "?denied=401": 401, "?denied=200": 429, "?denied=500": 429, "?x=1": 429} {
		w := ask(h, http.MethodGet, "/v1/forward-auth"+query)
		if w.Code != status || w.Header().Get("Retry-After") == "" || w.Header().Get("RateLimit") == "" || w.Body.Len() == 0 {
			t.Errorf("%q: %d %v", query, w.Code, w.Header())
		}
	}
}

// The client behind a proxy was told what the rule is called, and nothing of its answer could be set.
func TestAnswersCanBeSet(t *testing.T) {
	for about, c := range map[string]struct {
		answers enforce.Answers
		status  int
		rule    string
		header  string
	}{
		"by default":   {enforce.Answers{}, 429, "", `"limit";r=0`},
		"set":          {enforce.Answers{Status: 420, Type: "about:blank", Title: "Calm", Rules: map[string]enforce.PublicRule{"card-testing-detector-v2": {Name: "payments"}}}, 420, "payments", `"payments";r=0`},
		"older fields": {enforce.Answers{NoRateLimit: true, XRateLimit: true}, 429, "", ""},
	} {
		h, err := forwardauth.New(forwardauth.Config{Decider: tableOf(t, "*"), Answers: c.answers})
		if err != nil {
			t.Fatal(err)
		}
		for path, handler := range map[string]http.Handler{"/v1/forward-auth": h, "/v1/ext-authz/x": h.ExtAuthz("/v1/ext-authz")} {
			w := ask(handler, http.MethodGet, path)
			var p enforce.Problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != c.status || p.Status != c.status || p.Rule != c.rule {
				t.Errorf("%s, %s: %d %s, %v", about, path, w.Code, w.Body, err)
			}
			if c.answers.Title != "" && (p.Title != c.answers.Title || p.Type != c.answers.Type) {
				t.Errorf("%s, %s: %+v", about, path, p)
			}
			if got := w.Header().Get("RateLimit"); !strings.HasPrefix(got, c.header) || (got == "") != (c.header == "") || (w.Header().Get("X-RateLimit-Limit") == "100") != c.answers.XRateLimit {
				t.Errorf("%s, %s: %v", about, path, w.Header())
			}
			if told := fmt.Sprint(w.Header(), w.Body); strings.Contains(told, "card") {
				t.Errorf("%s, %s: %s", about, path, told)
			}
		}
		if w := ask(h, http.MethodGet, "/v1/forward-auth?denied=403"); w.Code != 403 {
			t.Errorf("%s: nginx gets %d", about, w.Code)
		}
	}
}

// Envoy sends the original method, and its path behind a prefix; it wants exactly 200.
func TestExtAuthz(t *testing.T) {
	for _, api := range []string{"get.search.query", "post.search.query"} {
		h := blocked(t, api).ExtAuthz("/v1/ext-authz/")
		for request, method := range map[string]string{
			"/v1/ext-authz/search/query":           "GET",
			"/v1/ext-authz/search/query?q=1":       "GET",
			"/v1/ext-authz//search//query/":        "GET",
			"/v1/ext-authz/Search/Query/deep/down": "POST",
		} {
			want := http.StatusOK
			if api[:3] == map[string]string{"GET": "get", "POST": "pos"}[method] {
				want = http.StatusTooManyRequests
			}
			if w := ask(h, method, request); w.Code != want {
				t.Errorf("%s %s with %s blocked: %d, want %d", method, request, api, w.Code, want)
			}
		}
	}
	if w := ask(blocked(t, "get").ExtAuthz("/v1/ext-authz"), http.MethodGet, "/v1/ext-authz"); w.Code != http.StatusTooManyRequests {
		t.Errorf("nothing behind the prefix is GET /: %d", w.Code)
	}
}

func TestWrongConfigs(t *testing.T) {
	if _, err := forwardauth.New(forwardauth.Config{}); err == nil {
		t.Error("nobody decides")
	}
	if _, err := forwardauth.New(forwardauth.Config{Decider: (*enforce.Table)(nil)}); err == nil {
		t.Error("a table that is nil decides")
	}
	if _, err := forwardauth.New(forwardauth.Config{Decider: tableOf(t, "*"), Answers: enforce.Answers{Status: 200}}); err == nil {
		t.Error("who is denied is answered 200, which lets through")
	}
}
