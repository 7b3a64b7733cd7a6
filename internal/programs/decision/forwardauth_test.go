package decision_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
	"github.com/tallygate/tallygate/verdict"
)

func mustRequest(t *testing.T, method, path string, headers ...string) *http.Request {
	t.Helper()
	req := httptest.NewRequest(method, path, nil)
	for _, h := range headers {
		name, value, ok := strings.Cut(h, ": ")
		if !ok {
			t.Fatalf("%q is no header", h)
		}
		req.Header.Set(name, value)
	}
	return req
}

func (r *rig) ask(headers ...string) *http.Response {
	r.t.Helper()
	return r.do(mustRequest(r.t, http.MethodGet, "/v1/forward-auth", headers...))
}

func only(api string) func(*verdict.Verdict) {
	return func(v *verdict.Verdict) { v.APIs = []string{api} }
}

func TestForwardAuthByHeaders(t *testing.T) {
	r := newRig(t).blocks(
		block("user", "uid", "42", only("search.query")),
		block("address", "ip", "203.0.113.9"),
		block("device", "attrs.device", "d1"))
	for headers, status := range map[string]int{
		"X-Tallygate-Uid: 42|X-Tallygate-Api: search.query": 429,
		"X-Tallygate-Uid: 42|X-Tallygate-Api: order.create": 204,
		"X-Tallygate-Uid: 43|X-Tallygate-Api: search.query": 204,
		"X-Tallygate-Ip: 203.0.113.9":                       429,
		// As in events: no address is none.
		"X-Tallygate-Ip: unix:":       204,
		"X-Tallygate-Attr-Device: d1": 429,
		"X-Tallygate-Attr-Device: d2": 204,
		"X-Other: 42":                 204,
	} {
		if resp := r.ask(strings.Split(headers, "|")...); resp.StatusCode != status {
			t.Errorf("%s: %s, want %d", headers, resp.Status, status)
		}
	}
}

// Without a header for the API, it is the original request's method and path.
func TestForwardAuthByOriginalRequest(t *testing.T) {
	for about, headers := range map[string]string{
		"nginx":         "X-Original-Method: POST|X-Original-Uri: /orders/new?x=1",
		"Traefik":       "X-Forwarded-Method: POST|X-Forwarded-Uri: /orders/new?x=1|X-Forwarded-Host: shop.example",
		"Caddy":         "X-Forwarded-Method: POST|X-Forwarded-Uri: /orders/new",
		"ingress-nginx": "X-Original-Method: POST|X-Original-Url: https://shop.example/Orders/new?x=1",
	} {
		r := newRig(t).blocks(block("r", "uid", "42", only("post.orders.new")))
		h := append(strings.Split(headers, "|"), "X-Tallygate-Uid: 42")
		if resp := r.ask(h...); resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%s: %s", about, resp.Status)
		}
		r.blocks(block("r", "uid", "42", only("get.orders.new")))
		if resp := r.ask(h...); resp.StatusCode != http.StatusNoContent {
			t.Errorf("%s, another API: %s", about, resp.Status)
		}
	}
	r := newRig(t).blocks(block("r", "uid", "42", only("get")))
	if resp := r.ask("X-Tallygate-Uid: 42"); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("nothing about the request is GET /: %s", resp.Status)
	}
	r = newRig(t).blocks(block("r", "uid", "42", only("get.a")))
	if resp := r.ask("X-Tallygate-Uid: 42", "X-Original-Url: %zz"); resp.StatusCode != http.StatusNoContent {
		t.Errorf("an URL that is none: %s", resp.Status)
	}
}

// With the settings that their recipes name, Traefik and APISIX are understood as they ask, and
// what a client adds to the headers that they always set changes nothing. Traefik's request is that
// of its ForwardAuth with trustForwardHeader false, APISIX's that of its forward-auth plugin.
func TestForwardAuthAsTraefikAndAPISIXAsk(t *testing.T) {
	r := newRig(t, func(c *decision.Config) {
		c.Headers = forwardauth.Headers{UID: "X-User", IP: "X-Forwarded-For", Method: "X-Forwarded-Method", Path: "X-Forwarded-Uri"}
	}).blocks(block("u", "uid", "42", only("post.orders.new")), block("a", "ip", "203.0.113.9"))
	for about, set := range map[string]string{
		"Traefik": "X-Forwarded-Proto: https|X-Forwarded-Host: shop.example|X-Forwarded-Port: 443|X-Forwarded-Server: t1|X-Real-Ip: 203.0.113.8|",
		"APISIX":  "X-Forwarded-Proto: https|X-Forwarded-Host: shop.example|",
	} {
		for request, status := range map[string]int{
			"X-Forwarded-Method: POST|X-Forwarded-Uri: /orders/new?x=1|X-Forwarded-For: 203.0.113.8|X-User: 42":                                                     429,
			"X-Forwarded-Method: POST|X-Forwarded-Uri: /orders/new?x=1|X-Forwarded-For: 203.0.113.8|X-User: 43":                                                     204,
			"X-Forwarded-Method: GET|X-Forwarded-Uri: /orders/new|X-Forwarded-For: 203.0.113.8|X-User: 42":                                                          204,
			"X-Forwarded-Method: GET|X-Forwarded-Uri: /|X-Forwarded-For: 203.0.113.9":                                                                               429,
			"X-Forwarded-Method: GET|X-Forwarded-Uri: /|X-Forwarded-For: 198.51.100.1, 203.0.113.9":                                                                 429,
			"X-Forwarded-Method: POST|X-Forwarded-Uri: /orders/new|X-Forwarded-For: 203.0.113.8|X-User: 42|X-Original-Uri: /x|X-Original-Method: GET|X-Real-Ip: ::": 429,
		} {
			if resp := r.ask(strings.Split(set+request, "|")...); resp.StatusCode != status {
				t.Errorf("%s, %s: %s, want %d", about, request, resp.Status, status)
			}
		}
	}
}

// Without any setting, a client gains nothing by the headers of another kind of proxy than its own,
// whichever that is.
func TestHeadersThatDisagreeAreDenied(t *testing.T) {
	r := newRig(t).blocks(block("r", "uid", "42", only("post.orders")))
	for about, headers := range map[string][]string{
		"a client of nginx":   {"X-Original-Method: POST", "X-Original-Uri: /orders", "X-Forwarded-Uri: /harmless"},
		"a client of Traefik": {"X-Forwarded-Method: POST", "X-Forwarded-Uri: /orders", "X-Original-Uri: /x", "X-Original-Method: GET", "X-Original-Url: http://a/x"},
	} {
		for _, query := range []string{"", "?denied=403"} {
			resp := r.do(mustRequest(t, http.MethodGet, "/v1/forward-auth"+query, append(headers, "X-Tallygate-Uid: 42")...))
			wantProblem(t, about, resp, http.StatusBadRequest, "name different requests")
		}
	}
	r.wantMetrics(`tallygate_checks_refused_total{reason="headers_disagree"} 4`)
}

// A client must not choose its API by the header of another kind of proxy.
func TestForwardAuthTrustsTheHeadersItIsTold(t *testing.T) {
	r := newRig(t, func(c *decision.Config) {
		c.Headers = forwardauth.Headers{
			UID: "X-User", IP: "X-Real-Ip", API: "X-Api", AttrPrefix: "x-attr-",
			Method: "X-Forwarded-Method", Path: "X-Forwarded-Uri",
		}
	}).blocks(block("r", "uid", "42", only("post.orders")), block("d", "attrs.device", "d1"), block("i", "ip", "203.0.113.9"))
	for headers, status := range map[string]int{
		"X-User: 42|X-Forwarded-Method: POST|X-Forwarded-Uri: /orders|X-Original-Uri: /harmless": 429,
		"X-Tallygate-Uid: 42|X-Tallygate-Api: post.orders":                                       204,
		"X-User: 42|X-Api: post.orders":                                                          429,
		"X-Attr-Device: d1":                                                                      429,
		"X-Real-Ip: 203.0.113.9":                                                                 429,
	} {
		if resp := r.ask(strings.Split(headers, "|")...); resp.StatusCode != status {
			t.Errorf("%s: %s, want %d", headers, resp.Status, status)
		}
	}
}

// What a proxy hands on is what a service with the middleware would have answered.
func TestForwardAuthDeniesAsTheMiddlewareDoes(t *testing.T) {
	r := newRig(t).blocks(block("search-combined", "uid", "42", func(v *verdict.Verdict) { v.Public = "searches" }))
	got := r.ask("X-Tallygate-Uid: 42", "X-Tallygate-Api: search.query")

	guarded := httplimit.Middleware(r.table, httplimit.Options{UID: func(*http.Request) string { return "42" }})(http.NotFoundHandler())
	w := httptest.NewRecorder()
	guarded.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/search/query", nil))
	want := w.Result()

	if got.StatusCode != http.StatusTooManyRequests || want.StatusCode != got.StatusCode {
		t.Errorf("%s, and from the middleware %s", got.Status, want.Status)
	}
	for _, h := range []string{"Content-Type", "Cache-Control", "RateLimit-Policy"} {
		if got.Header.Get(h) == "" || got.Header.Get(h) != want.Header.Get(h) {
			t.Errorf("%s: %q, and from the middleware %q", h, got.Header.Get(h), want.Header.Get(h))
		}
	}
	for _, h := range []string{"Retry-After", "RateLimit"} {
		if got.Header.Get(h) == "" {
			t.Errorf("no %s", h)
		}
	}
	if p := decode[enforce.Problem](t, got); p.Rule != "searches" || p.RetryAfter < 299 || p.Status != 429 {
		t.Errorf("%+v", p)
	}
}

func TestAllowStatus(t *testing.T) {
	r := newRig(t, func(c *decision.Config) { c.AllowStatus = http.StatusOK })
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodHead} {
		if resp := r.do(mustRequest(t, method, "/v1/forward-auth")); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", method, resp.Status)
		}
	}
}

func TestWrongConfigs(t *testing.T) {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for about, cfg := range map[string]decision.Config{
		"no table":           {},
		"status 202":         {Table: table, AllowStatus: http.StatusAccepted},
		"negative staleness": {Table: table, MaxStaleness: -1},
	} {
		if _, err := decision.New(cfg); err == nil {
			t.Errorf("%s is accepted", about)
		}
	}
	if _, err := decision.New(decision.Config{Table: table}); err != nil {
		t.Errorf("a table is enough: %v", err)
	}
}

func TestShadowVerdictsAreNotForwarded(t *testing.T) {
	r := newRig(t).blocks(block("r", "uid", "42", func(v *verdict.Verdict) { v.Mode = verdict.Shadow }))
	resp := r.ask("X-Tallygate-Uid: 42")
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusNoContent || json.Valid(body) {
		t.Errorf("%s %s", resp.Status, body)
	}
}
