package httplimit

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

func TestPathAPI(t *testing.T) {
	for _, c := range []struct{ method, path, want string }{
		{"GET", "/Images/ks-logo.gif?x=1", "get.images.ks-logo-gif"},
		{"GET", "/", "get"},
		{"GET", "", "get"},
		{"POST", "//orders//42/items", "post.orders.42"},
		{"PUT", "/caf%C3%A9/a_b/", "put.caf-.a-b"},
		{"GET", "/é/x", "get.-.x"},
		{"GET", "/" + strings.Repeat("a", 200), "get." + strings.Repeat("a", 124)},
	} {
		if got := PathAPI(c.method, c.path); got != c.want {
			t.Errorf("PathAPI(%q, %q) = %q, want %q", c.method, c.path, got, c.want)
		}
	}
	if got := RouteAPI(httptest.NewRequest("DELETE", "/v1/Users/7?q=/x", nil)); got != "delete.v1.users" {
		t.Errorf("RouteAPI = %q", got)
	}
}

func TestMiddlewareDenies(t *testing.T) {
	table := newTable(t)
	table.Replace(0, []verdict.Verdict{block("search/burst", "uid=42", func(v *verdict.Verdict) {
		v.Public = "searches"
		v.APIs, v.Since, v.Until = []string{"get.search.*"}, 0, now()+5*event.Minute-event.Millisecond
	})})
	passed := 0
	handler := Middleware(table, Options{UID: byHeader})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed++ }))
	send := func(method, path, user string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("X-User", user)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}

	w := send("GET", "/search/query?q=x", "42")
	if w.Code != http.StatusTooManyRequests || passed != 0 {
		t.Fatalf("status %d, passed %d times, want 429 and none", w.Code, passed)
	}
	want := map[string]string{
		"Retry-After":      "300",
		"Ratelimit":        `"searches";r=0;t=300`,
		"Ratelimit-Policy": `"searches";q=100`,
		"Cache-Control":    "no-store",
		"Content-Type":     "application/problem+json",
	}
	got := map[string]string{}
	for name := range w.Header() {
		got[name] = w.Header().Get(name)
	}
	if !maps.Equal(got, want) {
		t.Errorf("headers %v, want %v", got, want)
	}
	var body map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatal(err)
	}
	for member, value := range map[string]any{
		"type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "status": 429.0, "rule": "searches", "retry_after": 300.0, "action": "block",
		"detail": `The limit of "searches" was exceeded; try again in 300 s.`,
	} {
		if body[member] != value {
			t.Errorf("%s is %v, want %v", member, body[member], value)
		}
	}

	if w := send("HEAD", "/x", "42"); w.Code != 200 || passed != 1 {
		t.Errorf("an API that the verdict doesn't cover: status %d, passed %d", w.Code, passed)
	}
	if w := send("GET", "/search/query", "43"); w.Code != 200 || passed != 2 {
		t.Errorf("another user: status %d, passed %d", w.Code, passed)
	}
	if w := send("GET", "/search/query", ""); w.Code != 200 || passed != 3 {
		t.Errorf("nobody: status %d, passed %d", w.Code, passed)
	}
}

func TestMiddlewareOptions(t *testing.T) {
	table := newTable(t)
	since := func(v *verdict.Verdict) { v.Since = 0 }
	table.Apply(0, []verdict.Verdict{
		block("a", "ip=192.0.2.1", since), block("b", "attrs.device=d1", since),
		block("c", "ip=192.0.2.2", func(v *verdict.Verdict) { v.Since, v.Action = 0, verdict.ActLog }),
	})
	header := func(name string) func(*http.Request) string {
		return func(r *http.Request) string { return r.Header.Get(name) }
	}
	denied := ""
	options := Options{
		IP: header("IP"), Attrs: map[string]func(*http.Request) string{"device": header("Device")},
		API: func(*http.Request) string { return "login" },
		Denied: func(w http.ResponseWriter, _ *http.Request, d enforce.Decision) {
			denied = d.Rule()
			w.WriteHeader(418)
		},
	}
	send := func(ip, device string) int {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("IP", ip)
		r.Header.Set("Device", device)
		w := httptest.NewRecorder()
		Middleware(table, options)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		return w.Code
	}
	for _, c := range []struct {
		ip, device string
		code       int
		rule       string
	}{
		{"192.0.2.1", "", 418, "a"}, {"192.0.2.9", "d1", 418, "b"}, {"192.0.2.9", "d2", 200, ""},
		{"192.0.2.2", "", 200, ""}, // logged only
	} {
		denied = ""
		if code := send(c.ip, c.device); code != c.code || denied != c.rule {
			t.Errorf("ip %q, device %q: status %d by %q, want %d by %q", c.ip, c.device, code, denied, c.code, c.rule)
		}
	}
}

func TestMiddlewareNeedsSomeoneToCheck(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic for options that name nobody")
		}
	}()
	Middleware(newTable(t), Options{})
}

func TestMiddlewareAddsNoAllocation(t *testing.T) {
	table := newTable(t)
	table.Replace(0, []verdict.Verdict{block("r", "uid=42", nil)})
	handler := Middleware(table, Options{
		UID:   func(r *http.Request) string { return r.Header.Get("X-User") },
		IP:    func(*http.Request) string { return "192.0.2.1" },
		Attrs: map[string]func(*http.Request) string{"device": func(*http.Request) string { return "d" }},
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequest("GET", "/orders/1", nil)
	r.Header.Set("X-User", "nobody")
	w := httptest.NewRecorder()
	if n := testrun.Allocs(1000, func() { handler.ServeHTTP(w, r) }); n != 0 {
		t.Errorf("%v allocations a request without a verdict, want none", n)
	}
}
