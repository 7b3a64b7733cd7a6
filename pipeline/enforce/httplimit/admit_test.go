package httplimit

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/rig/permits"
	"github.com/tallygate/tallygate/verdict"
)

func TestPermitsAreAskedForBehindTheTable(t *testing.T) {
	table := newTable(t)
	table.Replace(0, []verdict.Verdict{until("blocked", verdict.ActBlock, time.Hour), until("logged", verdict.ActLog, time.Hour)})
	a, emitted := &permits.Admitter{}, &events{}
	var ids []string
	h := Middleware(table, Options{
		UID: byHeader, Admit: a, Events: emitted, Answers: enforce.Answers{XRateLimit: true},
		Event: func(r *http.Request, _ *event.Event) bool { return byHeader(r) != "dropped" },
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ids = append(ids, PermitOf(r.Context()).ID)
		switch byHeader(r) {
		case "fails":
			w.WriteHeader(http.StatusBadGateway)
		case "panics":
			panic(http.ErrAbortHandler)
		}
	}))
	for user, want := range map[string]int{"blocked": 429, "limited": 429, "doubt": 503, "wrong": 503, "none": 200, "logged": 200} {
		if w := get(h, user); w.Code != want {
			t.Errorf("%s: %d, want %d", user, w.Code, want)
		}
	}
	if heard := a.Heard(); !slices.Contains(heard, "logged done success") {
		t.Errorf("before: %v", heard)
	}
	ids, *emitted = nil, nil
	for _, user := range []string{"ok", "fails", "dropped", "none"} {
		get(h, user)
	}
	func() {
		defer func() { _ = recover() }()
		get(h, "panics")
	}()
	var told []string
	for _, e := range *emitted {
		told = append(told, e.UID+" "+e.Outcome+" "+e.Permit.ID)
	}
	want := [][]string{
		{"permit of ok", "permit of fails", "permit of dropped", "", "permit of panics"},
		{"ok success permit of ok", "fails failure permit of fails", "none success ", "panics failure permit of panics"},
		{
			"asked get.search of ok", "ok done success", "asked get.search of fails", "fails done failure", "asked get.search of dropped", "dropped cancelled",
			"asked get.search of none", "asked get.search of panics", "panics done failure",
		},
	}
	if diff := cmp.Diff(want, [][]string{ids, told, a.Heard()}); diff != "" {
		t.Errorf("(- want)\n%s", diff)
	}
	a.NoRule = true
	if w, heard := get(h, "limited"), a.Heard(); w.Code != 200 || len(heard) > 0 {
		t.Errorf("idle: %d, %v", w.Code, heard)
	}
	a.NoRule = false
	table.SetEnabled(false)
	if w, heard := get(h, "limited"), a.Heard(); w.Code != 200 || len(heard) > 0 {
		t.Errorf("with a kill switch: %d, %v", w.Code, heard)
	}
}

func TestAnswersOfAdmissions(t *testing.T) {
	h := Middleware(newTable(t), Options{UID: byHeader, Admit: &permits.Admitter{}, Answers: enforce.Answers{XRateLimit: true}})(ok)
	for user, want := range map[string][]string{
		"ok":      {`"per day";r=3;t=2`, `"per day";q=5`, "5", "3", ""},
		"limited": {`"per day";r=0;t=90`, `"per day";q=5`, "5", "0", "90"},
		"doubt":   {"", "", "", "", "1"},
		"none":    {"", "", "", "", ""},
	} {
		w := get(h, user)
		var got []string
		for _, name := range []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "Retry-After"} {
			got = append(got, w.Header().Get(name))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (- want)\n%s", user, diff)
		}
		if strings.Contains(w.Body.String(), "daily") {
			t.Errorf("%s is told the rule's own name: %s", user, w.Body)
		}
	}
}

// Adapters of other routers end permits too, without any events.
func TestPassagesEndPermits(t *testing.T) {
	a := &permits.Admitter{}
	g, err := NewGate(newTable(t), Options{UID: byHeader, Admit: a})
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"one", "two", "none"} {
		w, r := request(user)
		p, ok := g.Enter(w, r)
		if !ok {
			t.Fatal(w.Code)
		}
		if user == "two" {
			p.Cancel()
		}
		p.Done(0)
	}
	if diff := cmp.Diff([]string{"asked get.search of one", "one done success", "asked get.search of two", "two cancelled", "asked get.search of none"}, a.Heard()); diff != "" {
		t.Error(diff)
	}
}

func request(user string) (*httptest.ResponseRecorder, *http.Request) {
	r := httptest.NewRequest("GET", "/search", nil)
	r.Header.Set("X-User", user)
	return httptest.NewRecorder(), r
}

// Behind a proxy that asks, the permit is the proxy's, and the event carries it.
func TestPermitsOfProxies(t *testing.T) {
	const given, other = `{"permit":"given","permit_at":"1970-01-01T00:00:00.000007Z"}`, `{"permit":"other"}`
	table := newTable(t)
	table.Replace(0, []verdict.Verdict{until("blocked", verdict.ActBlock, time.Hour)})
	var log strings.Builder
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	for _, c := range []struct {
		user    string
		headers []string
		off     bool
		ids     []string // of the permits of the handler's request and of the event; nil: it did not get there
		asked   bool
		warned  bool
	}{
		{user: "ok", headers: []string{given}, ids: []string{"given", "given"}},
		{user: "limited", headers: []string{given}, ids: []string{"given", "given"}}, // the proxy has asked
		{user: "panics", headers: []string{given}, ids: []string{"given", "given"}},
		{user: "blocked", headers: []string{given}, ids: []string{"given"}}, // the event of the denial
		{user: "ok", ids: []string{"permit of ok", "permit of ok"}, asked: true},
		{user: "ok", headers: []string{""}, ids: []string{"permit of ok", "permit of ok"}, asked: true},
		{user: "ok", headers: []string{"{}"}, ids: []string{"permit of ok", "permit of ok"}, asked: true, warned: true},
		{user: "ok", headers: []string{given, other}, ids: []string{"permit of ok", "permit of ok"}, asked: true, warned: true},
		{user: "ok", headers: []string{given}, off: true, ids: []string{"permit of ok", "permit of ok"}, asked: true},
	} {
		log.Reset()
		a, emitted := &permits.Admitter{}, &events{}
		var ids []string
		h := Middleware(table, Options{UID: byHeader, Admit: a, Events: emitted, EmitDenied: true, PermitHeader: !c.off})(
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				ids = append(ids, PermitOf(r.Context()).ID)
				if c.user == "panics" {
					panic(http.ErrAbortHandler)
				}
			}))
		for range 2 { // what is logged, is logged once
			*emitted, ids = nil, nil
			w, r := request(c.user)
			if c.headers != nil {
				r.Header[event.PermitHeader] = c.headers
			}
			func() {
				defer func() { _ = recover() }()
				h.ServeHTTP(w, r)
			}()
			for _, e := range *emitted {
				ids = append(ids, e.Permit.ID)
			}
			var heard []string
			if c.asked {
				heard = []string{"asked get.search of ok", "ok done success"}
			}
			if diff := cmp.Diff([][]string{c.ids, heard}, [][]string{ids, a.Heard()}); diff != "" {
				t.Errorf("%s with %q (- want)\n%s", c.user, c.headers, diff)
			}
		}
		if n := strings.Count(log.String(), "\n"); n != map[bool]int{true: 1}[c.warned] || strings.Contains(log.String(), "other") {
			t.Errorf("%s with %q: %d lines: %s", c.user, c.headers, n, &log)
		}
	}
}

// A handler that emits its own events finds the permit of a gate that has nothing else to do.
func TestPermitsOfProxiesWithoutEvents(t *testing.T) {
	id := ""
	h := Middleware(newTable(t), Options{UID: byHeader, PermitHeader: true})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { id = PermitOf(r.Context()).ID }))
	w, r := request("ok")
	r.Header.Set(event.PermitHeader, `{"permit":"given"}`)
	if h.ServeHTTP(w, r); id != "given" {
		t.Errorf("the handler finds %q", id)
	}
}

// A sum needs a number before the action, and its permit is asked for that. What the handler notes is the event's;
// a handler that says nothing, or panics, has used all of it.
func TestWhatIsReserved(t *testing.T) {
	number := func(n int64) event.Value { return event.NumberValue(event.Decimal(n) * event.One) }
	a, emitted := &permits.Admitter{}, &events{}
	h := Middleware(newTable(t), Options{
		UID: byHeader, Admit: a, Events: emitted, Attrs: map[string]func(*http.Request) string{"team": Constant("web")},
		Reserve: func(*http.Request) enforce.Reservation {
			return enforce.Reservation{Cost: 3 * event.One, Attrs: []event.Attr{{Name: "tokens", Value: number(500)}, {Name: "team", Value: event.StringValue("ops")}}}
		},
	})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch byHeader(r) {
		case "less":
			enforce.Note(r.Context(), enforce.Attr("tokens", number(20)), enforce.Cost(event.One))
		case "panics":
			panic(http.ErrAbortHandler)
		}
	}))
	for user, want := range map[string][2]event.Decimal{"less": {20, 1}, "silent": {500, 3}, "panics": {500, 3}} {
		*emitted = nil
		func() {
			defer func() { _ = recover() }()
			get(h, user)
		}()
		e := (*emitted)[0]
		tokens, _ := e.Attr("tokens")
		if team, _ := e.Attr("team"); tokens != event.NumberValue(want[0]*event.One) || e.Cost != want[1]*event.One || team.Text != "ops" {
			t.Errorf("the event of %s is %+v", user, e)
		}
		if heard := a.Heard(); heard[0] != "asked get.search of "+user+": 3 {tokens team}" {
			t.Errorf("%s: %q", user, heard)
		}
	}
}
