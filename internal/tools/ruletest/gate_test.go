package ruletest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/accesslog"
	"github.com/tallygate/tallygate/internal/tools/engine"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// emitted are the events that a gate emits.
type emitted []event.Event

func (e *emitted) Emit(ev event.Event) bool { *e = append(*e, ev); return true }

// statusOf returns a handler's status for an action that ends as a story says. Passwords that are wrong are 401.
func statusOf(e *event.Event) int {
	switch e.Outcome {
	case event.OutcomeFailure:
		if e.API == "login" || e.API == "otp.verify" {
			return http.StatusUnauthorized
		}
		return http.StatusUnprocessableEntity
	case event.OutcomeDenied:
		return http.StatusForbidden
	case event.OutcomeLimited:
		return http.StatusTooManyRequests
	}
	return http.StatusOK
}

func pathOf(api string) string { return "/" + strings.ReplaceAll(api, ".", "/") }

// throughGate is the event that a middleware emits of a story's: it asks who, where from and what, and gets
// the outcome from the status. What only a handler knows, the service adds.
func throughGate(t *testing.T, e *event.Event) {
	var out emitted
	story := *e
	gate := httplimit.Middleware(newTable(t), httplimit.Options{
		UID: httplimit.Header("X-User"), IP: httplimit.ClientIP(), Events: &out,
		API: func(r *http.Request) string { return strings.ReplaceAll(strings.Trim(r.URL.Path, "/"), "/", ".") },
		Event: func(_ *http.Request, e *event.Event) bool {
			e.ID, e.Cost, e.Refunds, e.Attrs, e.Time = story.ID, story.Cost, story.Refunds, append(story.Attrs, e.Attrs...), story.Time
			return true
		},
	})
	r := httptest.NewRequest("POST", pathOf(e.API), nil)
	if r.RemoteAddr = "@"; e.IP.IsValid() {
		r.RemoteAddr = "[" + e.IP.String() + "]:4711"
	}
	if e.UID != "" {
		r.Header.Set("X-User", e.UID)
	}
	gate(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(statusOf(&story)) })).ServeHTTP(httptest.NewRecorder(), r)
	if len(out) != 1 {
		t.Fatalf("%d events of %+v", len(out), story)
	}
	*e = out[0]
}

// readLog reads what logLine writes.
func readLog() *accesslog.Reader {
	lines := accesslog.Lines{Format: accesslog.Common, Proxies: httplimit.NewProxies(netip.MustParsePrefix("198.18.0.1/32"))}
	return lines.Reader(strings.NewReader(""))
}

// logLine writes a story's request as a server logs it. One without an address is its own proxy's.
func logLine(e *event.Event) string {
	client, user := "198.18.0.1", e.UID
	if e.IP.IsValid() {
		client = e.IP.String()
	}
	if user == "" {
		if user = "-"; !e.IP.IsValid() {
			client = "198.18.0.2"
		}
	}
	return fmt.Sprintf("%s - %s [%s] \"POST %s HTTP/1.1\" %d 10\n", client, user, e.Time.Time().UTC().Format("02/Jan/2006:15:04:05 -0700"), pathOf(e.API), statusOf(e))
}

// throughLog is the event that a line becomes. Lines have whole seconds: the story's time stays.
func throughLog(t *testing.T, in *accesslog.Reader, e *event.Event) {
	in.Reset(strings.NewReader(logLine(e)))
	got, _, err := in.Next()
	if err != nil {
		t.Fatalf("%s: %v", logLine(e), err)
	}
	at := e.Time
	*e = got.Clone()
	e.API, e.Time = strings.TrimPrefix(e.API, "post."), at
}

func newTable(t testing.TB) *enforce.Table {
	t.Helper()
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// Rules about logins counted `failure`, and a gate, and a log, said `denied` of 401: behind them they never
// fired. So each story of the gallery ends as it does when its events are requests.
func TestTheGalleryBehindAGateAndFromLogs(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../testdata/rules/*_test.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	logged := 0
	for _, path := range files {
		for way, through := range map[string]func(*testing.T, *event.Event){
			"gate": throughGate,
			"log": func(in *accesslog.Reader) func(*testing.T, *event.Event) {
				return func(t *testing.T, e *event.Event) { throughLog(t, in, e) }
			}(readLog()),
		} {
			t.Run(strings.TrimSuffix(filepath.Base(path), "_test.yaml")+" "+way, func(t *testing.T) {
				file, err := Load(path)
				if err != nil {
					t.Fatal(err)
				}
				suite, err := NewSuite(t.Context(), file, OnDisk)
				if err != nil {
					t.Fatal(err)
				}
				for i := range file.Tests {
					test := &file.Tests[i]
					if way == "log" && slices.ContainsFunc(test.Events, unlogged) {
						continue
					}
					for j := range test.Events {
						through(t, &test.Events[j].Event)
					}
					if way == "log" {
						logged++
					}
					for _, f := range suite.Run(t.Context(), test).Failures {
						t.Errorf("%s:%d: %s: want %s, got %s\n%s", path, f.Line, f.What, f.Want, f.Got, strings.Join(f.Story, "\n"))
					}
				}
			})
		}
	}
	if logged < 30 {
		t.Errorf("%d stories were played from logs", logged)
	}
}

// unlogged reports whether no access log says what an event says.
func unlogged(e Event) bool {
	return len(e.Attrs) > 0 || e.Cost != event.One || e.ID != "" || e.Refunds != ""
}

// A client that asks each eight seconds, at five a minute, was denied for ever: each denied request counted,
// and prolonged the block. It has to get out again, however its requests are told.
func TestWhoeverKeepsAskingGetsOutAgain(t *testing.T) {
	const rule = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: out}
spec:
  rules:
    - {name: searches, match: {api: search}, limit: 5, per: 1m, then: {%s}}
`
	for _, then := range []string{"block: 1m", "block: until-reset", "block: 30s, extend: true", "escalate: [1m, 2m], forget: 10m"} {
		for _, byLog := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				set, err := rules.Compile("out.yaml", fmt.Appendf(nil, rule, then))
				if err != nil {
					t.Fatal(err)
				}
				table, seq := newTable(t), int64(0)
				counting, in := engine.New(set), readLog()
				count := func(e *event.Event) {
					var out engine.Outcome
					counting.Apply(e, event.NoTime, verdict.Cause{}, &out)
					for _, v := range out.Changes {
						seq++
						v.Seq = seq
						table.Apply(0, []verdict.Verdict{v})
					}
				}
				var out emitted
				o := httplimit.Options{UID: httplimit.Header("X-User"), API: httplimit.Constant("search"), Events: &out, EmitDenied: true}
				if byLog {
					o.Events, o.EmitDenied = nil, false
				}
				handler := httplimit.Middleware(table, o)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				allowed, denied, again := 0, 0, 0
				for range 300 {
					time.Sleep(8 * time.Second)
					r, w := httptest.NewRequest("GET", "/search", nil), httptest.NewRecorder()
					r.Header.Set("X-User", "42")
					handler.ServeHTTP(w, r)
					if w.Code == http.StatusOK {
						if allowed++; denied > 0 {
							again++
						}
					} else {
						denied++
					}
					if byLog {
						e := event.Event{UID: "42", API: "search", Time: event.FromTime(time.Now())}
						in.Reset(strings.NewReader(strings.Replace(logLine(&e), " 200 ", fmt.Sprintf(" %d ", w.Code), 1)))
						got, _, err := in.Next()
						if err != nil {
							t.Fatal(err)
						}
						got.API = "search"
						count(&got)
						continue
					}
					count(&out[0])
					out = nil
				}
				if denied == 0 || again < 50 {
					t.Errorf("%s, from a log %v: allowed %d times, denied %d times, and allowed %d times after the first denial", then, byLog, allowed, denied, again)
				}
			})
		}
	}
}
