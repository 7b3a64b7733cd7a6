package aggregator

import (
	"net/http"
	"os"
	"testing"

	"github.com/alicebob/miniredis/v2"

	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/internal/testing/apitest"
)

func TestMain(m *testing.M) {
	os.Exit(apitest.Complete(m, apidocs.Aggregator,
		// Faults of Kafka and of instances, which have tests of their own.
		"GET /v1/explain 500", "GET /v1/explain 502", "GET /v1/blocked 500", "GET /v1/blocked 502",
		"POST /v1/commands 502", "POST /v1/commands 504", "POST /v1/grants 502", "POST /v1/grants 504", "POST /v1/dead-letters 502", "POST /v1/dead-letters 503", "POST /v1/dead-letters 504",
		"GET /readyz 503", "GET /v1/whoami 503", "GET /v1/status 503", "GET /v1/cluster 503", "GET /v1/unmatched 503", "GET /v1/hot-keys 503", "GET /v1/rules 503",
		"POST /-/reload 503", "GET /v1/rules/versions 503", "POST /v1/rules/rollback 503", "POST /v1/rules/rollback 422", "POST /v1/reads 504",
		"GET /v1/rules/distribution 503",
	).Run())
}

// Whatever has a role is refused without a credential, and to a page of the web; and answers are there
// that no other test has.
func TestTheRestOfWhatIsDescribed(t *testing.T) {
	p := joined(t, groupOf(t, someRules), nil, "--tokens", staff(t))
	ask := func(p *program, token, method, path, body string, want int, change ...func(*http.Request)) {
		t.Helper()
		if got, said := p.ask(token, method, path, body, change...); got != want {
			t.Errorf("%s %s as %q: %d %s, want %d", method, path, token, got, said, want)
		}
	}
	page := func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }
	text := func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }
	for _, o := range apitest.Open(t, apidocs.Aggregator).Operations() {
		if o.Role() == "" {
			continue
		}
		ask(p, "", o.Method, o.Path, "", 401)
		ask(p, "admin", o.Method, o.Path, "", 403, page)
		if o.Method == http.MethodPost {
			if o.Role() != "viewer" {
				ask(p, "viewer", o.Method, o.Path, "{}", 403)
			}
			ask(p, "admin", o.Method, o.Path, "{}", 415, text)
		}
	}
	for _, path := range []string{"/openapi.json", "/healthz", "/readyz"} {
		ask(p, "", http.MethodGet, path, "", 200)
	}
	for _, path := range []string{"/v1/rules", "/v1/rules/distribution?rule=a", "/v1/unmatched", "/v1/exemptions?uid=42&limit=5", "/v1/explain?key=uid%3D42&exact=true&limit=0", "/v1/hot-keys?limit=2"} {
		ask(p, "viewer", http.MethodGet, path, "", 200)
	}
	if got, said := p.ask("operator", http.MethodGet, "/v1/whoami", ""); got != 200 || said != `{"credential":"token","name":"the-operator","role":"operator"}`+"\n" {
		t.Errorf("who an operator is: %d %s", got, said)
	}
	for _, path := range []string{"/v1/blocked?partition=x", "/v1/explain", "/v1/explain?user=42", "/v1/hot-keys?limit=0", "/v1/hot-keys?limt=5", "/v1/exemptions?uid=42&limit=%zz", "/v1/explain?uid=42;api=a", "/v1/rules/distribution", "/v1/rules/distribution?rule=none", "/v1/rules/distribution?rule=a&x=1", "/v1/exemptions?limit=0", "/v1/grants?limit=0"} {
		ask(p, "viewer", http.MethodGet, path, "", 400)
	}
	ask(p, "admin", http.MethodPost, "/v1/commands", `{"command":"block"}`, 400)

	publisher := joined(t, nil, nil, "--rules", "", "--publish-only", "--redis", miniredis.RunT(t).Addr())
	ask(publisher, "", http.MethodGet, "/v1/rules", "", 404)
	ask(publisher, "", http.MethodPost, "/v1/dead-letters", "[]", 501)
	ask(publisher, "", http.MethodGet, "/v1/cluster", "", 501)
	ask(publisher, "", http.MethodGet, "/v1/rules/versions", "", 404)
	ask(publisher, "", http.MethodPost, "/v1/reads", `{"key":"uid=1","what":"explain"}`, 503)
	ask(publisher, "", http.MethodGet, "/v1/status", "", 200)
	ask(publisher, "", http.MethodPost, "/-/reload", "", 501)
	ask(publisher, "", http.MethodPost, "/v1/commands", block("42"), 503)
	ask(publisher, "", http.MethodPost, "/v1/grants", `{"id":"i","key":"uid=1","rule":"a","amount":1,"reason":"a test"}`, 503)
	for _, path := range []string{"/v1/blocked?partition=0", "/v1/explain?uid=42", "/v1/exemptions", "/v1/grants"} {
		ask(publisher, "", http.MethodGet, path, "", 503)
	}
}
