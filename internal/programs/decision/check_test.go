package decision_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

func TestCheck(t *testing.T) {
	r := newRig(t).blocks(block("search-combined", "uid", "42", func(v *verdict.Verdict) { v.APIs = []string{"search.*"} }))

	a := r.check(`{"uid": "42", "api": "search.query"}`)
	if a.Allowed || a.Action != "block" || a.Rule != "search-combined" || len(a.Verdicts) != 1 || a.Verdicts[0].Seq != 7 {
		t.Errorf("the blocked one: %+v", a)
	}
	until, err := time.Parse(time.RFC3339, a.Until)
	if left := time.Until(until); err != nil || a.RetryAfter < 299 || a.RetryAfter > 300 || left < 4*time.Minute || left > 5*time.Minute {
		t.Errorf("retry after %d s, until %s", a.RetryAfter, a.Until)
	}
	if d, err := time.ParseDuration(a.Staleness); err != nil || d < 0 || d > time.Minute {
		t.Errorf("staleness %q: %v", a.Staleness, err)
	}
	for about, body := range map[string]string{
		"another API":  `{"uid": "42", "api": "order.create"}`,
		"someone else": `{"uid": "43", "api": "search.query"}`,
		"nobody":       `{"api": "search.query"}`,
		"null":         `{"uid": null, "ip": "", "attrs": null, "api": "search.query"}`,
	} {
		if a := r.check(body); !a.Allowed || a.Rule != "" || a.RetryAfter != 0 || a.Verdicts == nil || len(a.Verdicts) != 0 {
			t.Errorf("%s: %+v", about, a)
		}
	}
}

// Services and operators get the rule's name, with what their own callers may be told beside it;
// proxies' callers get the latter only, or what the server was told to answer.
func TestCheckHasThePublicNameBesideTheRules(t *testing.T) {
	named := block("card-testing-detector-v2/burst", "uid", "42", func(v *verdict.Verdict) { v.Public = "payments" })
	nameless := block("card-testing-detector-v2", "uid", "43")
	for _, c := range []struct {
		answers enforce.Answers
		uid     string
		public  string
	}{
		{enforce.Answers{}, "42", "payments"},
		{enforce.Answers{}, "43", ""},
		{enforce.Answers{Rules: map[string]enforce.PublicRule{"card-testing-detector-v2": {Name: "checkout"}}}, "42", "checkout"},
		{enforce.Answers{Rules: map[string]enforce.PublicRule{"card-testing-detector-v2": {Name: "checkout"}}}, "43", "checkout"},
	} {
		r := newRig(t, func(d *decision.Config) { d.Answers = c.answers }).blocks(named, nameless)
		a := r.check(fmt.Sprintf(`{"uid": %q, "api": "a"}`, c.uid))
		if !strings.HasPrefix(a.Rule, "card-testing-detector-v2") || a.Public != c.public || len(a.Verdicts) != 1 || a.Verdicts[0].Rule != a.Rule {
			t.Errorf("%s: %+v, want the public name %q", c.uid, a, c.public)
		}
		for _, path := range []string{"/v1/forward-auth", "/v1/ext-authz/a"} {
			req := httptest.NewRequest(http.MethodGet, path, nil)
			req.Header.Set("X-Tallygate-Uid", c.uid)
			resp := r.do(req)
			body, err := io.ReadAll(resp.Body)
			var p enforce.Problem
			if err != nil || json.Unmarshal(body, &p) != nil || resp.StatusCode != http.StatusTooManyRequests || p.Rule != c.public {
				t.Errorf("%s: %s: %s %s, %v", c.uid, path, resp.Status, body, err)
			}
			if told := fmt.Sprint(resp.Header, string(body)); strings.Contains(told, "card") {
				t.Errorf("%s: %s tells the rule's own name: %s", c.uid, path, told)
			}
		}
	}
}

// A machine that was too busy, or suspended, leaves the table's clock behind: answers held
// entries for a tenth of a second after their until, and after a pause for as long as that took.
func TestTableWhoseClockStandsStill(t *testing.T) {
	table, err := enforce.NewTable(enforce.Config{Resolution: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(c *decision.Config) { c.Table = table })
	r.table = table
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = table.Run(ctx) })
	defer running.Wait()
	defer stop()
	for began := table.Now(); table.Now() != began; began = table.Now() { // until Run has set it
		time.Sleep(time.Millisecond)
	}
	until := time.Now().Add(50 * time.Millisecond)
	r.blocks(block("r", "uid", "42", func(v *verdict.Verdict) { v.Until = event.FromTime(until) }))
	time.Sleep(time.Until(until) + time.Millisecond)
	if d := table.CheckAt(table.Now(), "a", "42"); d.Allowed {
		t.Fatal("the table's clock did not stand still")
	}
	if a := r.check(`{"uid": "42", "api": "a"}`); !a.Allowed || len(a.Verdicts) != 0 {
		t.Errorf("held after its until: %+v", a)
	}
	if page, _ := table.List("", "", 10); len(page) != 0 {
		t.Errorf("listed after its until: %+v", page[0])
	}
}

// Events may have integers as uids, so checks may too.
func TestIntegerUID(t *testing.T) {
	r := newRig(t).blocks(block("r", "uid", "42"), block("r", "uid", "-7"), block("r", "uid", "0"), block("r", "uid", "12345678901234567890123"))
	for _, uid := range []string{"42", `"42"`, "-7", "-0", "12345678901234567890123"} {
		if r.check(`{"api": "a", "uid": ` + uid + `}`).Allowed {
			t.Errorf("uid %s is let through", uid)
		}
	}
	for _, uid := range []string{"42.0", "1e3", "true", "{}", `["42"]`} {
		wantProblem(t, uid, r.post("/v1/check", `{"api": "a", "uid": `+uid+`}`), http.StatusBadRequest, "a string or an integer")
	}
}

// Values of attributes are compared as text, in the form that keys have.
func TestAttributes(t *testing.T) {
	r := newRig(t).blocks(block("s", "attrs.device", "d1"), block("n", "attrs.level", "42"), block("f", "attrs.ratio", "0.5"), block("b", "attrs.trial", "true"))
	for attrs, denied := range map[string]bool{
		`{"device": "d1"}`:       true,
		`{"device": "d2"}`:       false,
		`{"level": 42}`:          true,
		`{"level": 42.0}`:        true,
		`{"level": "42"}`:        true,
		`{"level": 4.2e1}`:       true,
		`{"ratio": 0.50}`:        true,
		`{"trial": true}`:        true,
		`{"trial": false}`:       false,
		`{"trial": "true"}`:      true,
		`{"device": null}`:       false,
		`{"device": ""}`:         false,
		`{"x": 1, "level": 42 }`: true,
	} {
		if a := r.check(`{"api": "a", "attrs": ` + attrs + `}`); a.Allowed == denied {
			t.Errorf("%s: %+v", attrs, a)
		}
	}
}

// An address is one address however it is written.
func TestAddresses(t *testing.T) {
	r := newRig(t).blocks(block("v4", "ip", "203.0.113.9"), block("v6", "ip", "2001:db8::1"), block("net", "ip/64", "2001:db8:1::/64"))
	for ip, rule := range map[string]string{
		"203.0.113.9":           "v4",
		"::ffff:203.0.113.9":    "v4",
		"2001:db8::1":           "v6",
		"2001:0DB8:0:0:0:0:0:1": "v6",
		"2001:db8::1%eth0":      "v6",
		"2001:db8:1:0:aaaa::1":  "net",
		"2001:db8:2::1":         "",
		"203.0.113.10":          "",
	} {
		if a := r.check(fmt.Sprintf(`{"api": "a", "ip": %q}`, ip)); a.Rule != rule {
			t.Errorf("%s: %q, want %q", ip, a.Rule, rule)
		}
	}
}

// A shadow verdict is shown, and denies nothing; neither does one whose action is to log.
func TestWhatDoesNotDeny(t *testing.T) {
	r := newRig(t).blocks(
		block("watched", "uid", "1", func(v *verdict.Verdict) { v.Mode = verdict.Shadow }),
		block("logged", "uid", "2", func(v *verdict.Verdict) { v.Action = verdict.ActLog }),
		block("puzzle", "uid", "3", func(v *verdict.Verdict) { v.Action = verdict.ActChallenge }),
		block("weaker", "uid", "3"))
	if a := r.check(`{"uid": "1", "api": "a"}`); !a.Allowed || a.Rule != "" || len(a.Verdicts) != 1 || a.Verdicts[0].Mode != verdict.Shadow {
		t.Errorf("shadow: %+v", a)
	}
	if a := r.check(`{"uid": "2", "api": "a"}`); !a.Allowed || a.Rule != "logged" || a.Action != "log" || a.RetryAfter != 0 {
		t.Errorf("log: %+v", a)
	}
	if a := r.check(`{"uid": "3", "api": "a"}`); a.Allowed || a.Action != "block" || len(a.Verdicts) != 2 {
		t.Errorf("the strongest action decides, and all are shown: %+v", a)
	}
}

func TestWrongBodies(t *testing.T) {
	r := newRig(t)
	for body, what := range map[string]string{
		``:                                  "the body: it is empty",
		`{"uid": "42"`:                      "the body: the JSON ends too early",
		`uid=42`:                            "the body: invalid JSON at byte 1",
		`[]`:                                "a JSON array is not allowed here",
		`{"api": 5}`:                        "api: a JSON number is not allowed here",
		`{"api": "a"} {"api": "b"}`:         "more than one JSON value",
		`{"api": "a"} x`:                    "the body: invalid JSON",
		`{"uid": "42"}`:                     "api is required",
		`{"api": "a", "user": "42"}`:        `unknown field "user"`,
		`{"api": "a", "ip": "localhost"}`:   `ip "localhost" is not an IPv4 or IPv6 address`,
		`{"api": "a", "attrs": {"x": [1]}}`: "an attribute is a string, a number or a boolean",
		`{"api": "a", "attrs": {"x": {}}}`:  "an attribute is a string, a number or a boolean",
		`{"api": "a", "attrs": {"x": 1e9999999999}}`: "a number out of range",
		`{"api": "a", "attrs": ["x"]}`:               "attrs: a JSON array",
	} {
		wantProblem(t, body, r.post("/v1/check", body), http.StatusBadRequest, what)
	}
	big := `{"api": "a", "uid": "` + strings.Repeat("x", 1<<20) + `"}`
	wantProblem(t, "1 MiB and more", r.post("/v1/check", big), http.StatusRequestEntityTooLarge, "at most 1048576 bytes")
	wantProblem(t, "1 MiB of blanks", r.post("/v1/check", `{"api": "a"}`+strings.Repeat(" ", 1<<20)), http.StatusRequestEntityTooLarge, "at most")
	if resp := r.do(mustRequest(t, http.MethodGet, "/v1/check")); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %s", resp.Status)
	}
}

func TestBatch(t *testing.T) {
	r := newRig(t).blocks(block("r", "uid", "42"))
	batch := func(n int) string {
		checks := make([]string, n)
		for i := range checks {
			checks[i] = fmt.Sprintf(`{"uid": %d, "api": "a"}`, i)
		}
		return `{"checks": [` + strings.Join(checks, ",") + `]}`
	}
	got := decode[api.Decisions](t, r.post("/v1/check/batch", batch(1000))).Results
	if len(got) != 1000 {
		t.Fatalf("%d results of 1000 checks", len(got))
	}
	for i, a := range got {
		if a.Allowed == (i == 42) {
			t.Errorf("check %d: %+v", i, a)
		}
	}
	wantProblem(t, "one too many", r.post("/v1/check/batch", batch(1001)), http.StatusBadRequest, "1001 checks, at most 1000")
	wantProblem(t, "a bad one", r.post("/v1/check/batch", `{"checks": [{"api": "a"}, {"uid": 1}]}`), http.StatusBadRequest, "checks[1]: api is required")
	if got := decode[api.Decisions](t, r.post("/v1/check/batch", `{"checks": []}`)).Results; got == nil || len(got) != 0 {
		t.Errorf("no checks: %v", got)
	}
}
