package forwardauth_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// blocked is a handler on a table in which user 42 may not use these APIs.
func blocked(t testing.TB, apis ...string) *forwardauth.Handler {
	t.Helper()
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	now := event.FromTime(time.Now())
	table.Replace(0, []verdict.Verdict{{
		Rule: "search-combined", Key: []event.Dim{{Name: "uid", Value: "42"}}, Action: verdict.ActBlock, APIs: apis,
		Limit: 100 * event.One, Since: now, Until: now + 5*event.Minute,
	}})
	h, err := forwardauth.New(forwardauth.Config{Decider: table})
	if err != nil {
		t.Fatal(err)
	}
	return h
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
}
