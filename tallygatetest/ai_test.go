package tallygatetest_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
	"github.com/tallygate/tallygate/tallygatetest"
)

// calls are calls of language models through the middleware, as a service makes them.
type calls struct {
	t       *testing.T
	h       *tallygatetest.Harness
	handler http.Handler
	inside  func() // what a call does while it is under way
}

// call is one of somebody, such as "acme web u1 large s1", with the most that it may use, and its use.
type call struct {
	who          string
	usd, tokens  float64 // reserved
	spent, spoke float64 // used; below 0: the call panics
}

func newCalls(t *testing.T, file, api string) *calls {
	c := &calls{t: t, h: tallygatetest.New(t, "../testdata/rules/"+file+".yaml")}
	field := func(n int) func(*http.Request) string {
		return func(r *http.Request) string { return strings.Fields(r.Header.Get("X-Who"))[n] }
	}
	number := func(r *http.Request, name string) event.Attr {
		f, err := strconv.ParseFloat(r.Header.Get("X-"+name), 64)
		if err != nil {
			t.Fatal(err)
		}
		return event.Attr{Name: name, Value: event.NumberValue(event.Decimal(f * float64(event.One)))}
	}
	c.handler = c.h.Middleware(httplimit.Options{
		UID: field(2), API: httplimit.Constant(api),
		Attrs: map[string]func(*http.Request) string{"org": field(0), "team": field(1), "user": field(2), "model": field(3), "session": field(4)},
		Reserve: func(r *http.Request) enforce.Reservation {
			return enforce.Reservation{Attrs: []event.Attr{number(r, "usd"), number(r, "tokens")}}
		},
	})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if c.inside != nil {
			c.inside()
		}
		if r.Header.Get("X-spent") == "-1" {
			panic(http.ErrAbortHandler)
		}
		spent, spoke := number(r, "spent"), number(r, "spoke")
		enforce.Note(r.Context(), enforce.Attr("usd", spent.Value), enforce.Attr("tokens", spoke.Value))
	}))
	return c
}

func (c *calls) do(one call) (w *httptest.ResponseRecorder) {
	r := httptest.NewRequest("POST", "/v1/chat/completions", nil)
	w = httptest.NewRecorder()
	r.Header.Set("X-Who", one.who)
	for name, f := range map[string]float64{"usd": one.usd, "tokens": one.tokens, "spent": one.spent, "spoke": one.spoke} {
		r.Header.Set("X-"+name, strconv.FormatFloat(f, 'f', -1, 64))
	}
	defer func() { _ = recover() }()
	c.handler.ServeHTTP(w, r)
	return w
}

// wants makes a call, and holds its status against what is wanted.
func (c *calls) wants(status int, one call) {
	c.t.Helper()
	if w := c.do(one); w.Code != status {
		c.t.Errorf("%+v: %d %s, want %d", one, w.Code, w.Body, status)
	}
}

func TestMoneyByOrganisationTeamAndUser(t *testing.T) {
	c := newCalls(t, "ai-budgets", "llm.call")
	c.wants(200, call{who: "acme web u1 large s1", usd: 15, spent: 4})
	c.wants(200, call{who: "acme web u1 large s1", usd: 16, spent: 1}) // the rest of the first is free again
	c.wants(429, call{who: "acme web u1 large s1", usd: 15.01})
	if n := c.h.Count("user-usd-day", "uid=u1"); n != 5 {
		t.Errorf("the user has spent %v", n)
	}
	c.wants(200, call{who: "acme web u1 large s1", usd: 15, spent: -1}) // nobody knows what it used: all of it counts
	c.wants(429, call{who: "acme web u1 large s1", usd: 0.01})
	for _, user := range []string{"u2", "u3", "u4", "u5"} {
		c.wants(200, call{who: "acme web " + user + " large s1", usd: 20, spent: 19.5})
	}
	c.wants(429, call{who: "acme web u6 large s1", usd: 3}) // 98 of the team's 100
	c.wants(200, call{who: "acme web u6 large s1", usd: 2, spent: 2})
	c.wants(200, call{who: "other web u7 large s1", usd: 2, spent: 2})
	if n := c.h.Count("organisation-usd-month", "attrs.org=acme"); n != 100 {
		t.Errorf("the organisation has spent %v", n)
	}
	c.h.Advance(24 * time.Hour)
	c.wants(200, call{who: "acme web u1 large s1", usd: 20, spent: 0})
	if n := c.h.Count("organisation-usd-month", "attrs.org=acme"); n != 100 {
		t.Errorf("a call that did nothing was counted: %v", n)
	}
}

func TestTokensAMinute(t *testing.T) {
	c := newCalls(t, "ai-tokens-per-minute", "llm.call")
	w := c.do(call{who: "acme web u1 large s1", tokens: 40_000, spoke: 10_000})
	if got := w.Header().Get("RateLimit"); w.Code != 200 || !strings.HasPrefix(got, `"tokens";r=10000`) {
		t.Errorf("%d, %s", w.Code, got)
	}
	c.wants(429, call{who: "acme web u1 large s1", tokens: 40_001})
	c.wants(200, call{who: "acme web u1 large s1", tokens: 40_000, spoke: 40_000})
	w = c.do(call{who: "acme web u1 large s1", tokens: 1})
	if w.Code != 429 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), `"rule":"tokens"`) {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	c.h.Advance(2 * time.Minute)
	c.wants(200, call{who: "acme web u1 large s1", tokens: 50_000, spoke: 1})
}

func TestEachModelByItself(t *testing.T) {
	c := newCalls(t, "ai-models", "llm.call")
	c.wants(200, call{who: "acme web u1 large s1", tokens: 100_000, spoke: 100_000})
	c.wants(429, call{who: "acme web u2 large s1", tokens: 1})
	c.wants(200, call{who: "acme web u2 small s1", tokens: 1_000_000, spoke: 5})
	c.wants(200, call{who: "acme ops u2 large s1", tokens: 100_000, spoke: 5})
}

func TestAnAgentsSession(t *testing.T) {
	c := newCalls(t, "ai-sessions", "llm.call")
	c.wants(429, call{who: "acme web u1 large s1", usd: 5.01})
	for range 201 {
		c.wants(200, call{who: "acme web u1 large s1", usd: 1, spent: 0.01})
		c.h.Advance(time.Second)
	}
	c.wants(429, call{who: "acme web u1 large s1", usd: 1})
	c.wants(200, call{who: "acme web u1 large s2", usd: 5, spent: 5})
	c.wants(429, call{who: "acme web u1 large s2", usd: 0.01})
}

// Five hours begin with the first call, and the next five with the next one.
func TestAnAgentsFiveHours(t *testing.T) {
	c := newCalls(t, "agent-session", "model.call")
	c.h.Advance(37 * time.Minute)
	c.wants(200, call{who: "acme web u1 large s1", tokens: 200_000, spoke: 120_000})
	c.wants(429, call{who: "acme web u1 large s1", tokens: 80_001})
	c.h.Advance(5*time.Hour - time.Second)
	c.wants(200, call{who: "acme web u1 large s1", tokens: 80_000, spoke: 80_000})
	c.wants(429, call{who: "acme web u1 large s1", tokens: 1})
	c.h.Advance(time.Second)
	c.wants(200, call{who: "acme web u1 large s1", tokens: 200_000, spoke: 5})
}

// Runs within runs: what is under way counts, whoever waits for it.
func TestRunsAtOnce(t *testing.T) {
	c := newCalls(t, "ai-runs-at-once", "agent.run")
	run := func(user string) call { return call{who: "acme web " + user + " large s1"} }
	depth := 0
	c.inside = func() {
		switch depth++; depth {
		case 1:
			c.wants(200, run("u1"))
		case 2:
			c.wants(429, run("u1"))
			c.wants(200, run("u2"))
		}
	}
	c.wants(200, run("u1"))
	c.inside = nil
	c.wants(200, call{who: "acme web u1 large s1", spent: -1}) // also one that panics gives its place back
	c.wants(200, run("u1"))
	if n := c.h.Count("user-runs-day", "uid=u1"); n != 4 {
		t.Errorf("%v runs of the user are counted", n)
	}
	depth = 0
	c.inside = func() {
		if depth++; depth < 10 {
			c.wants(200, run("v"+strconv.Itoa(depth)))
		} else {
			c.wants(429, run("v10"))
		}
	}
	c.wants(200, run("v0"))
}
