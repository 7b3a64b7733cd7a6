package decision_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

func leaves(rule, dim, value string, count event.Decimal, alter ...func(*verdict.Verdict)) verdict.Verdict {
	v := block(rule, dim, value, alter...)
	v.State, v.Count = verdict.Left, count*event.One
	return v
}

func (r *rig) get(target string) *http.Response {
	return r.do(httptest.NewRequest("GET", target, nil))
}

// A settings page asks what someone has left. It is told public names only, and nothing of limits of
// which nothing is known.
func TestQuota(t *testing.T) {
	public := func(v *verdict.Verdict) { v.Public, v.APIs, v.Per = "searches", []string{"search.*"}, 5*event.Minute }
	r := newRig(t, func(c *decision.Config) {
		c.Answers = enforce.Answers{Rules: map[string]enforce.PublicRule{"exports": {Name: "downloads"}}}
	}).blocks(
		leaves("search-combined", "uid", "42", 63, public), leaves("exports/daily", "attrs.tenant", "acme", 120), leaves("nameless", "uid", "42", 1),
		block("search-combined", "uid", "43", public),
	)
	for target, want := range map[string]string{
		"/v1/quota?uid=42":                              "searches 37 of 100 63 300",
		"/v1/quota?uid=42&api=search.query":             "searches 37 of 100 63 300",
		"/v1/quota?uid=42&api=order.create":             "",
		"/v1/quota?uid=42&attrs.tenant=acme":            "downloads 0 of 100 120 0; searches 37 of 100 63 300",
		"/v1/quota?uid=43":                              "",
		"/v1/quota?ip=192.0.2.1&api=x&attrs.tenant=any": "",
	} {
		res := r.get(target)
		var a struct {
			Quotas []struct {
				Rule               string
				Limit, Left, Count json.Number
				Window             json.Number
				Resets             event.Micros
			}
		}
		if err := json.NewDecoder(res.Body).Decode(&a); err != nil || res.StatusCode != 200 || a.Quotas == nil {
			t.Fatalf("%s: %d, %v, %v", target, res.StatusCode, err, a.Quotas)
		}
		got := ""
		for _, q := range a.Quotas {
			if got != "" {
				got += "; "
			}
			if q.Window == "" {
				q.Window = "0"
			}
			got += q.Rule + " " + q.Left.String() + " of " + q.Limit.String() + " " + q.Count.String() + " " + q.Window.String()
			if q.Resets <= event.FromTime(time.Now()) {
				t.Errorf("%s: resets at %v", target, q.Resets)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (- want)\n%s", target, diff)
		}
	}
	for _, target := range []string{"/v1/quota", "/v1/quota?api=x", "/v1/quota?user=42", "/v1/quota?uid=1&uid=2", "/v1/quota?ip=home", "/v1/quota?uid=%zz", "/v1/quota?attrs.=1"} {
		if res := r.get(target); res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d, want 400", target, res.StatusCode)
		}
	}
}

// Proxies hear what is left of an allowed request in the answer, and their callers, if they pass it on.
func TestProxiesHearWhatIsLeft(t *testing.T) {
	r := newRig(t).blocks(leaves("search-combined", "uid", "42", 63, func(v *verdict.Verdict) { v.Public = "searches" }))
	for _, target := range []string{"/v1/forward-auth", "/v1/ext-authz/search"} {
		req := httptest.NewRequest("GET", target, nil)
		req.Header.Set("X-User-ID", "42")
		req.Header.Set("X-Tallygate-UID", "42")
		res := r.do(req)
		if res.StatusCode >= 300 || res.Header.Get("RateLimit") != `"searches";r=37;t=300` {
			t.Errorf("%s: %d, %v", target, res.StatusCode, res.Header)
		}
	}
}
