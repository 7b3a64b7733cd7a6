package httplimit

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

type events []event.Event

func (e *events) Emit(ev event.Event) bool {
	*e = append(*e, ev)
	return true
}

func byHeader(r *http.Request) string { return r.Header.Get("X-User") }

func get(h http.Handler, user string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/search", nil)
	r.Header.Set("X-User", user)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })

// until is a verdict on a user from now on.
func until(user string, action verdict.Action, d time.Duration) verdict.Verdict {
	return block("r", "uid="+user, func(v *verdict.Verdict) {
		v.Since, v.Action = now(), action
		v.Until = v.Since + event.Micros(d.Microseconds())
	})
}

func TestEachActionIsCarriedOut(t *testing.T) {
	table := newTable(t)
	table.Replace(0, []verdict.Verdict{
		until("blocked", verdict.ActBlock, time.Hour), until("challenged", verdict.ActChallenge, time.Hour),
		until("logged", verdict.ActLog, time.Hour), until("throttled", verdict.ActThrottle, time.Hour),
	})
	var logged []string
	o := Options{UID: byHeader, Logged: func(r *http.Request, d enforce.Decision) { logged = append(logged, byHeader(r)+" "+d.Rule()) }}
	plain := Middleware(table, o)(ok)
	o.Challenge = func(w http.ResponseWriter, _ *http.Request, _ enforce.Decision) {
		w.WriteHeader(http.StatusUnauthorized)
	}
	asking := Middleware(table, o)(ok)
	for user, want := range map[string][2]int{
		"blocked": {429, 429}, "challenged": {429, 401}, "logged": {200, 200}, "throttled": {429, 429}, "nobody": {200, 200},
	} {
		if a, b := get(plain, user).Code, get(asking, user).Code; a != want[0] || b != want[1] {
			t.Errorf("%s: %d, and with a challenge %d, want %v", user, a, b, want)
		}
	}
	if diff := cmp.Diff([]string{"logged r", "logged r"}, logged); diff != "" {
		t.Error(diff)
	}
}

func TestThrottledRequestsWaitForANearEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := running(t)
		h := Middleware(table, Options{UID: byHeader, MaxDelay: 2 * time.Second, MaxDelayed: 1})(ok)
		table.Replace(0, []verdict.Verdict{until("near", verdict.ActThrottle, 1500*time.Millisecond), until("far", verdict.ActThrottle, 2500*time.Millisecond)})

		began := time.Now()
		if w := get(h, "far"); w.Code != 429 || time.Since(began) != 0 {
			t.Errorf("an end that is far: %d after %v, want 429 at once", w.Code, time.Since(began))
		}
		second := make(chan int)
		go func() {
			time.Sleep(time.Second)
			second <- get(h, "near").Code
		}()
		if w := get(h, "near"); w.Code != 200 || time.Since(began) != 1500*time.Millisecond {
			t.Errorf("a near end: %d after %v, want 200 after 1.5 s", w.Code, time.Since(began))
		}
		if code := <-second; code != 429 {
			t.Errorf("one more than may wait: %d, want 429", code)
		}

		table.Apply(0, []verdict.Verdict{until("extended", verdict.ActThrottle, time.Second)})
		began = time.Now()
		go func() {
			time.Sleep(500 * time.Millisecond)
			v := until("extended", verdict.ActThrottle, time.Minute)
			v.Seq = 2
			table.Apply(0, []verdict.Verdict{v})
		}()
		if w := get(h, "extended"); w.Code != 429 || time.Since(began) != time.Second {
			t.Errorf("extended meanwhile: %d after %v, want 429 after 1 s", w.Code, time.Since(began))
		}

		table.Apply(0, []verdict.Verdict{until("gone", verdict.ActThrottle, time.Second)})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
		r.Header.Set("X-User", "gone")
		began = time.Now()
		h.ServeHTTP(httptest.NewRecorder(), r)
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("a client that left waited for %v", took)
		}
	})
}

func TestTheMiddlewareEmitsWhatHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := running(t)
		table.Replace(0, []verdict.Verdict{until("blocked", verdict.ActBlock, time.Hour)})
		var got events
		o := Options{
			UID: byHeader, IP: ClientIP(), Attrs: map[string]func(*http.Request) string{"region": Constant("eu")}, Events: &got,
			Event: func(r *http.Request, e *event.Event) bool { e.ID = "e1"; return byHeader(r) != "quiet" },
		}
		h := Middleware(table, o)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(1500 * time.Microsecond)
			switch byHeader(r) {
			case "unlucky":
				w.WriteHeader(500)
			case "streams":
				_, _ = io.Copy(w, strings.NewReader("x"))
				w.(http.Flusher).Flush()
			case "panics":
				panic(http.ErrAbortHandler)
			}
		}))
		began := time.Now()
		for _, user := range []string{"lucky", "unlucky", "streams", "quiet", "blocked"} {
			get(h, user)
		}
		func() {
			defer func() { _ = recover() }()
			get(h, "panics")
			t.Error("a panic is swallowed")
		}()
		want := func(user, outcome, status string) string {
			return user + " 192.0.2.1 get.search " + outcome + " region=eu status=" + status + " latency_ms=1.5"
		}
		var texts []string
		for _, e := range got {
			if e.ID != "e1" || e.Time < event.FromTime(began) || e.Validate() != nil {
				t.Errorf("%+v: %v", e, e.Validate())
			}
			s := e.UID + " " + e.IP.String() + " " + e.API + " " + e.Outcome
			for _, a := range e.Attrs {
				s += " " + a.Name + "=" + a.Value.Text
			}
			texts = append(texts, s)
		}
		if diff := cmp.Diff([]string{want("lucky", "success", "200"), want("unlucky", "failure", "500"),
			want("streams", "success", "200"), strings.TrimSuffix(want("blocked", "limited", "429"), "1.5") + "0", want("panics", "failure", "500")}, texts); diff != "" {
			t.Error(diff)
		}
		got, o.EmitDenied = nil, true
		get(Middleware(table, o)(ok), "blocked")
		if len(got) != 1 || got[0].Outcome != "limited" {
			t.Errorf("of a denied request: %+v", got)
		}
		// Whatever the response is, and also when nobody knows: what is denied here did not happen.
		got, o.Denied = nil, func(w http.ResponseWriter, _ *http.Request, _ enforce.Decision) { w.WriteHeader(http.StatusForbidden) }
		get(Middleware(table, o)(ok), "blocked")
		stale, err := enforce.NewTable(enforce.Config{OnStale: enforce.Closed})
		if err != nil {
			t.Fatal(err)
		}
		o.Denied = nil
		get(Middleware(stale, o)(ok), "anybody")
		for i, status := range []string{"403", "503"} {
			if v, _ := got[i].Attr("status"); got[i].Outcome != "limited" || v.Text != status {
				t.Errorf("answered by %s: %+v", status, got[i])
			}
		}
	})
}

func TestAPartitionKeyIsOfTheKeyThatIsOver(t *testing.T) {
	table := newTable(t)
	table.Replace(0, []verdict.Verdict{until("42", verdict.ActBlock, time.Hour)})
	h := Middleware(table, Options{UID: byHeader, IP: ClientIP(), Answers: enforce.Answers{PartitionKey: []byte("secret")}})(ok)
	if got := get(h, "42").Header().Get("RateLimit"); !strings.HasSuffix(got, ";pk=:sdKGtRbfqOAt:") {
		t.Errorf("RateLimit: %s", got)
	}
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	many := map[string]func(*http.Request) string{"": nil}
	for i := range maxDims {
		many[strings.Repeat("a", i+1)] = Constant("x")
	}
	_, err := NewGate(newTable(t), Options{Attrs: many, MaxDelayed: -1, Answers: enforce.Answers{Status: 200}})
	if err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("error %v, want four lines", err)
	}
}

// Without a table it panicked at the first request.
func TestAGateNeedsATable(t *testing.T) {
	if g, err := NewGate(nil, Options{UID: byHeader}); err == nil || g != nil || !strings.Contains(err.Error(), "NewTable") {
		t.Errorf("%v, error %v, want one that says what to make", g, err)
	}
}

func TestAttributesThatTheGateAddsAreRefused(t *testing.T) {
	for _, name := range []string{"status", "latency_ms"} {
		o := Options{UID: byHeader, Attrs: map[string]func(*http.Request) string{name: byHeader}, Events: &events{}}
		if _, err := NewGate(newTable(t), o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A gate's event and its check are about the same key, and no header makes the event invalid.
func TestGatesEmitAndCheckTheSame(t *testing.T) {
	var sent events
	table := newTable(t)
	o := Options{UID: byHeader, Attrs: map[string]func(*http.Request) string{"device": Header("X-Device")}, API: func(*http.Request) string { return "search" }, Events: &sent}
	h := Middleware(table, o)(ok)
	r := httptest.NewRequest(http.MethodGet, "/search", nil)
	r.Header.Set("X-User", "a\xffb")
	r.Header.Set("X-Device", strings.Repeat("d", 70<<10))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if len(sent) != 1 || w.Code != http.StatusOK {
		t.Fatalf("%d, %d events", w.Code, len(sent))
	}
	e := sent[0]
	e.Canonicalize()
	if err := e.Validate(); err != nil {
		t.Fatal(err)
	}
	device, _ := e.Dim("attrs.device")
	table.Replace(0, []verdict.Verdict{block("r", event.FormatKey([]event.Dim{{Name: "attrs.device", Value: device}, {Name: "uid", Value: e.UID}}),
		func(v *verdict.Verdict) { v.Since, v.Until = now(), now()+event.Hour })})
	w = httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusTooManyRequests {
		t.Errorf("%d", w.Code)
	}
}

// Who is denied says once in a while who asks, and with what: a larger plan is told at once. Otherwise only EmitDenied
// emits what is denied, and a middleware without Events nothing.
func TestSomeDeniedRequestsAreEmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := running(t)
		table.Replace(0, []verdict.Verdict{until("blocked", verdict.ActBlock, time.Hour)})
		for all, want := range map[bool]string{false: "free free pro", true: "free free free free pro pro pro"} {
			var got events
			h := Middleware(table, Options{
				UID: byHeader, Attrs: map[string]func(*http.Request) string{"plan": Header("X-Plan")}, Events: &got, EmitDenied: all,
			})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("let in") }))
			ask := func(plan string) {
				w, r := request("blocked")
				r.Header.Set("X-Plan", plan)
				h.ServeHTTP(w, r)
			}
			for _, plan := range []string{"free", "free", "free", "free", "pro", "pro", "pro"} {
				ask(plan)
				time.Sleep(2 * time.Second)
			}
			var plans []string
			for i := range got {
				plan, _ := got[i].Attr("plan")
				plans = append(plans, plan.Text)
				if got[i].Outcome != event.OutcomeLimited || got[i].UID != "blocked" {
					t.Errorf("%+v", got[i])
				}
			}
			if is := strings.Join(plans, " "); is != want {
				t.Errorf("EmitDenied %v: %s, want %s", all, is, want)
			}
		}
	})
}
