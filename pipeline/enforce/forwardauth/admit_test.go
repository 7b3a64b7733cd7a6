package forwardauth_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/rig/permits"
)

const permitOfOK = `{"permit":"permit of ok","permit_at":"1970-01-01T00:00:00.000007Z"}`

// told is a proxy's view of an answer.
type told struct {
	Status                    int
	Permit                    []string // nil: nothing is said
	Remove, RetryAfter, Limit string
	Heard                     []string // by the admitter
}

func TestPermitsGoToTheProxy(t *testing.T) {
	const remove = event.PermitHeader
	asked := func(user string, more ...string) []string {
		return append([]string{"asked post.send of " + user}, more...)
	}
	limit, over := `"per day";r=3;t=2`, `"per day";r=0;t=90`
	none := []string{""}
	for _, c := range []struct {
		user, query             string
		change                  func(*permits.Admitter, *forwardauth.Config)
		forwardAuth, byExtAuthz told
	}{
		{user: "ok", forwardAuth: told{204, []string{permitOfOK}, "", "", limit, asked("ok", "ok left")}, byExtAuthz: told{200, []string{permitOfOK}, "", "", limit, asked("ok", "ok left")}},
		{user: "ok", change: func(_ *permits.Admitter, c *forwardauth.Config) { c.EmitAdmitted = true },
			forwardAuth: told{204, []string{permitOfOK}, "", "", limit, asked("ok", "ok done success")}, byExtAuthz: told{200, []string{permitOfOK}, "", "", limit, asked("ok", "ok done success")}},
		{user: "none", forwardAuth: told{204, none, "", "", "", asked("none")}, byExtAuthz: told{200, nil, remove, "", "", asked("none")}},
		{user: "limited", forwardAuth: told{429, nil, "", "90", over, asked("limited")}, byExtAuthz: told{429, nil, "", "90", over, asked("limited")}},
		{user: "limited", query: "?denied=403", forwardAuth: told{403, nil, "", "90", over, asked("limited")}, byExtAuthz: told{429, nil, "", "90", over, asked("limited")}},
		{user: "doubt", query: "?denied=403", forwardAuth: told{503, nil, "", "1", "", asked("doubt")}, byExtAuthz: told{429, nil, "", "1", "", asked("doubt")}},
		{user: "wrong", forwardAuth: told{503, nil, "", "1", "", asked("wrong")}, byExtAuthz: told{429, nil, "", "1", "", asked("wrong")}},
		{user: "42", forwardAuth: told{429, nil, "", "300", `"limit";r=0;t=300`, nil}, byExtAuthz: told{429, nil, "", "300", `"limit";r=0;t=300`, nil}}, // a verdict denies
		{user: "ok", change: func(a *permits.Admitter, _ *forwardauth.Config) { a.NoRule = true },
			forwardAuth: told{204, none, "", "", "", nil}, byExtAuthz: told{200, nil, remove, "", "", nil}},
		{user: "limited", change: func(_ *permits.Admitter, c *forwardauth.Config) { c.Decider.(*enforce.Table).SetEnabled(false) }, // a kill switch
			forwardAuth: told{204, none, "", "", "", nil}, byExtAuthz: told{200, nil, remove, "", "", nil}},
		{user: "ok", change: func(_ *permits.Admitter, c *forwardauth.Config) { c.Admit = nil }, forwardAuth: told{204, nil, "", "", "", nil}, byExtAuthz: told{200, nil, "", "", "", nil}},
	} {
		for target, want := range map[string]told{"/v1/forward-auth": c.forwardAuth, "/v1/ext-authz/send": c.byExtAuthz} {
			a := &permits.Admitter{}
			cfg := forwardauth.Config{Decider: tableOf(t, "*"), Admit: a}
			if c.change != nil {
				c.change(a, &cfg)
			}
			h, err := forwardauth.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			r := httptest.NewRequest("POST", target+c.query, nil)
			r.Header.Set("X-Tallygate-Uid", c.user)
			r.Header.Set("X-Forwarded-Method", "POST")
			r.Header.Set("X-Forwarded-Uri", "/send")
			r.Header.Set(event.PermitHeader, `{"permit":"forged"}`)
			serve(h, target).ServeHTTP(w, r)
			header := w.Header()
			got := told{w.Code, header.Values(event.PermitHeader), header.Get("X-Envoy-Auth-Headers-To-Remove"), header.Get("Retry-After"), header.Get("RateLimit"), a.Heard()}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s of %s (- want)\n%s", target, c.user, diff)
			}
			if got.Limit != "" && header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s of %s may be used again: %v", target, c.user, header)
			}
		}
	}
}

func serve(h *forwardauth.Handler, target string) http.Handler {
	if target == "/v1/forward-auth" {
		return h
	}
	return h.ExtAuthz("/v1/ext-authz")
}

// A proxy that leaves before it is answered does not pass the request on.
func TestPermitsOfWhoLeftAreGivenBack(t *testing.T) {
	for user, want := range map[string][]string{"ok": {"asked get of ok", "ok cancelled"}, "none": {"asked get of none"}} {
		ctx, leave := context.WithCancel(t.Context())
		a := &permits.Admitter{Leave: leave}
		h, err := forwardauth.New(forwardauth.Config{Decider: tableOf(t, "*"), Admit: a})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
		r.Header.Set("X-Tallygate-Uid", user)
		h.ServeHTTP(w, r)
		if diff := cmp.Diff(want, a.Heard()); w.Code != http.StatusServiceUnavailable || diff != "" {
			t.Errorf("%s: %d, %s", user, w.Code, diff)
		}
	}
}

// BenchmarkAllowed is a request that is let through: without an Admitter, and with an idle one.
func BenchmarkAllowed(b *testing.B) {
	for name, admit := range map[string]enforce.Admitter{"none": nil, "idle": &permits.Admitter{NoRule: true}} {
		h, err := forwardauth.New(forwardauth.Config{Decider: tableOf(b, "*"), Admit: admit})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("X-Tallygate-Uid", "43")
			r.Header.Set("X-Tallygate-Api", "search.query")
			w := httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
