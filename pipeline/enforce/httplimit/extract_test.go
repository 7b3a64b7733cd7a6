package httplimit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/rig/permits"
	"github.com/tallygate/tallygate/verdict"
)

func TestExtractors(t *testing.T) {
	type key struct{}
	type token struct{ subject string }
	with := func(v any) *http.Request {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-User", "42")
		r.AddCookie(&http.Cookie{Name: "sid", Value: "s1"})
		return r.WithContext(context.WithValue(r.Context(), key{}, v))
	}
	subject := Context(key{}, func(t token) string { return t.subject })
	for i, c := range []struct {
		of   func(*http.Request) string
		r    *http.Request
		want string
	}{
		{Header("x-user"), with(nil), "42"}, {Header("X-Other"), with(nil), ""},
		{Cookie("sid"), with(nil), "s1"}, {Cookie("other"), with(nil), ""},
		{ContextValue(key{}), with("u1"), "u1"}, {ContextValue(key{}), with(7), "7"}, {ContextValue(key{}), with(int64(-7)), "-7"},
		{ContextValue(key{}), with(uint64(7)), "7"}, {ContextValue(key{}), with(netip.MustParseAddr("::1")), "::1"},
		{ContextValue(key{}), with(1.5), ""}, {ContextValue(key{}), with(nil), ""},
		{subject, with(token{"alice"}), "alice"}, {subject, with("alice"), ""},
		{Constant("eu"), with(nil), "eu"},
		{First(Header("X-Other"), Cookie("sid"), Header("X-User")), with(nil), "s1"}, {First(), with(nil), ""},
	} {
		if got := c.of(c.r); got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
}

func TestTemplateAPI(t *testing.T) {
	for _, c := range []struct{ method, template, want string }{
		{"GET", "GET /orders/{id}", "get.orders.id"}, {"GET", "/orders/{id}/items", "get.orders.id.items"},
		{"HEAD", "GET /a", "get.a"}, {"HEAD", "/a/{x}", "get.a.x"}, {"GET", "POST  example.com/a/{path...}", "post.a.path"}, {"GET", "/a/{$}", "get.a"},
		{"GET", "/orders/{id:[0-9]+}", "get.orders.id"}, {"GET", "/orders/:id/*", "get.orders.id"}, {"GET", "/files/*path", "get.files.path"},
		{"POST", "/v1/users/:id?", "post.v1.users.id"}, {"GET", "/", "get"}, {"GET", "/A_b", "get.a-b"},
	} {
		if got := TemplateAPI(c.method, c.template); got != c.want {
			t.Errorf("TemplateAPI(%q, %q) = %q, want %q", c.method, c.template, got, c.want)
		}
	}
}

func TestAPIsOfAMux(t *testing.T) {
	mux := http.NewServeMux()
	inner := ""
	mux.HandleFunc("GET /orders/{id}", func(_ http.ResponseWriter, r *http.Request) { inner = PatternAPI(r) })
	of := Named(map[string]string{"get.orders.id": "order.read"}, MuxAPI(mux))
	for path, want := range map[string]string{"/orders/7": "order.read", "/other/thing/x": "unrouted"} {
		if got := of(httptest.NewRequest("GET", path, nil)); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/orders/7", nil))
	if inner != "get.orders.id" {
		t.Errorf("within the mux it is %q", inner)
	}
	if got := PatternAPI(httptest.NewRequest("GET", "/a/b/c", nil)); got != "get.a.b" {
		t.Errorf("without a pattern it is %q", got)
	}
}

// Scanners try thousands of paths, and each was an API of its own. What no route takes has one name, in the
// check and the event, unless the service names it itself.
func TestRequestsThatNoRouteTakesHaveOneName(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(http.ResponseWriter, *http.Request) {})
	wrapped := http.HandlerFunc(mux.ServeHTTP)
	for about, c := range map[string]struct {
		api  func(*http.Request) string
		next http.Handler
		want string
	}{
		"the default, around a mux":    {nil, mux, "unrouted"},
		"PatternAPI around a mux":      {PatternAPI, mux, "unrouted"},
		"MuxAPI":                       {MuxAPI(mux), wrapped, "unrouted"},
		"a name of its own":            {Named(map[string]string{"get.wp-admin.x-php": "probe"}, PatternAPI), mux, "probe"},
		"one name for all":             {Constant("shop"), mux, "shop"},
		"nobody knows the routes here": {nil, wrapped, "get.wp-admin.x-php"},
	} {
		got := events{}
		h := Middleware(newTable(t), Options{UID: byHeader, API: c.api, Events: &got})(c.next)
		for _, request := range []struct{ method, path, want string }{{"GET", "/wp-admin/x.php", c.want}, {"GET", "/orders/7", ""}} {
			w, r := requestFor(request.method, request.path)
			h.ServeHTTP(w, r)
			if e := got[len(got)-1]; request.want != "" && (e.API != request.want || e.Outcome != "failure" || w.Code != 404) || request.want == "" && e.API == "unrouted" {
				t.Errorf("%s: %s is %s, %s", about, request.path, e.API, e.Outcome)
			}
		}
	}
	got := events{} // a method that the route does not take
	w, r := requestFor("DELETE", "/orders/7")
	if Middleware(newTable(t), Options{UID: byHeader, Events: &got})(mux).ServeHTTP(w, r); w.Code != 405 || got[0].API != Unrouted {
		t.Errorf("%d, %+v", w.Code, got)
	}
}

func requestFor(method, path string) (*httptest.ResponseRecorder, *http.Request) {
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("X-User", "42")
	return httptest.NewRecorder(), r
}

// A probe is neither checked nor emitted, and needs no permit, whoever it says it is.
func TestSkippedRequests(t *testing.T) {
	table, got, a := newTable(t), events{}, &permits.Admitter{}
	table.Replace(0, []verdict.Verdict{until("42", verdict.ActBlock, time.Hour)})
	h := Middleware(table, Options{UID: byHeader, Events: &got, EmitDenied: true, Admit: a, Skip: PathIn("/healthz", "/metrics")})(ok)
	for path, want := range map[string]int{"/healthz": 200, "/metrics": 200, "/healthz/": 429, "//healthz": 429, "/%68ealthz": 200, "/metricsx": 429} {
		w, r := requestFor("GET", path)
		got = nil
		if h.ServeHTTP(w, r); w.Code != want || len(got) > 0 == (want == 200) {
			t.Errorf("%s: %d, %d events", path, w.Code, len(got))
		}
	}
	w, r := requestFor("GET", "/healthz")
	r.Header["X-User"] = []string{"1", "2"} // nobody asks who it is
	if h.ServeHTTP(w, r); w.Code != 200 || a.Heard() != nil {
		t.Errorf("%d, asked %q", w.Code, a.Heard())
	}
}

// The check ran before the ServeMux had found the pattern, and the event was named after it: what was counted was never denied.
func TestCheckAndEventHaveOneName(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("/shop/", http.StripPrefix("/shop", mux))
	wrapped := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { mux.ServeHTTP(w, r) })
	for about, c := range map[string]struct {
		api  func(*http.Request) string
		next http.Handler
		want string
	}{
		"around a mux":             {PatternAPI, mux, "get.orders.id"},
		"around a mux, with names": {Named(map[string]string{"get.orders.id": "order.read"}, PatternAPI), mux, "order.read"},
		"around what hides a mux":  {PatternAPI, wrapped, "get.orders.7"},
		"MuxAPI":                   {MuxAPI(mux), wrapped, "get.orders.id"},
	} {
		table, got := newTable(t), events{}
		o := Options{UID: byHeader, API: c.api, Events: &got}
		h := Middleware(table, o)(c.next)
		send := func(method, path string) int {
			r := httptest.NewRequest(method, path, nil)
			r.Header.Set("X-User", "42")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		if code := send("GET", "/orders/7"); code != 200 || len(got) != 1 || got[0].API != c.want {
			t.Fatalf("%s: %d, events %v, want one of %s", about, code, got, c.want)
		}
		table.Replace(0, []verdict.Verdict{block("r", "uid=42", func(v *verdict.Verdict) { v.APIs, v.Since, v.Until = []string{got[0].API}, 0, now()+event.Hour })})
		for _, request := range [][2]string{{"GET", "/orders/7"}, {"HEAD", "/orders/7"}, {"GET", "/orders/%37"}} {
			if code := send(request[0], request[1]); code != 429 {
				t.Errorf("%s: %v of what is blocked: %d", about, request, code)
			}
		}
		if code := send("POST", "/orders/7"); code != 405 {
			t.Errorf("%s: another method: %d", about, code)
		}
		named := 0
		o.API = func(r *http.Request) string { named++; return c.api(r) }
		h = Middleware(newTable(t), o)(c.next)
		if send("GET", "/orders/7"); named != 1 {
			t.Errorf("%s: a request is named %d times", about, named)
		}
	}
}

// Of several values of one header the first counted: a client that added its own in front was somebody else.
func TestSeveralValuesAreRefused(t *testing.T) {
	table := newTable(t)
	table.Replace(0, []verdict.Verdict{block("r", "uid=42", func(v *verdict.Verdict) { v.Since = 0 })})
	two := func(name string, values ...string) *http.Request {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "10.0.0.1:99"
		r.Header[name] = values
		return r
	}
	for about, c := range map[string]struct {
		o    Options
		r    *http.Request
		want int
	}{
		"Header":          {Options{UID: Header("X-User")}, two("X-User", "43", "42"), 400},
		"equal ones":      {Options{UID: Header("X-User")}, two("X-User", "43", "43"), 400},
		"one":             {Options{UID: Header("X-User")}, two("X-User", "42"), 429},
		"FirstHeader":     {Options{UID: FirstHeader("X-User")}, two("X-User", "43", "42"), 200},
		"LastHeader":      {Options{UID: LastHeader("X-User")}, two("X-User", "43", "42"), 429},
		"First":           {Options{UID: First(Cookie("sid"), Header("X-User"))}, two("X-User", "43", "42"), 400},
		"an attribute":    {Options{Attrs: map[string]func(*http.Request) string{"device": Header("X-Device")}}, two("X-Device", "a", "b"), 400},
		"an address":      {Options{IP: HeaderIP("X-Real-Ip", proxies...)}, two("X-Real-Ip", "192.0.2.1", "192.0.2.2"), 400},
		"a cookie":        {Options{UID: Cookie("sid")}, two("Cookie", "sid=43; sid=42"), 400},
		"the same cookie": {Options{UID: Cookie("sid")}, two("Cookie", "sid=42; sid=42"), 429},
		"the API":         {Options{UID: Constant("42"), API: Header("X-Api")}, two("X-Api", "a", "b"), 400},
		"its own answer": {Options{UID: Header("X-User"), Refused: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418) }},
			two("X-User", "43", "42"), 418},
	} {
		for _, sink := range []Emitter{nil, &events{}} {
			c.o.Events = sink
			w := httptest.NewRecorder()
			Middleware(table, c.o)(ok).ServeHTTP(w, c.r)
			if w.Code != c.want {
				t.Errorf("%s: %d, want %d", about, w.Code, c.want)
			}
			if e, isEvents := sink.(*events); isEvents && w.Code != 200 && len(*e) != map[int]int{429: 1}[w.Code] { // what is denied says who asks
				t.Errorf("%s: emitted %v", about, *e)
			}
			if w.Code == 400 && (w.Header().Get("Content-Type") != "application/problem+json" || w.Header().Get("Cache-Control") != "no-store") {
				t.Errorf("%s: %v", about, w.Header())
			}
		}
	}
}
