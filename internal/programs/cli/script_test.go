package cli_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/programs/cli"
	"github.com/tallygate/tallygate/internal/programs/enforcer"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// The scripts in testdata run the real commands, each in a process of its own.
func TestMain(m *testing.M) {
	run := func(command func(context.Context) int) func() {
		return func() {
			ctx, stop := ops.Stoppable(context.Background())
			status := command(ctx)
			stop()
			os.Exit(status)
		}
	}
	testscript.Main(m, map[string]func(){
		"tallygate": run(func(ctx context.Context) int {
			return cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, testrun.Getenv)
		}),
		"aggregator": run(func(ctx context.Context) int {
			return aggregator.Command(ctx, os.Args[1:], os.Stdout, os.Stderr, testrun.Getenv)
		}),
		"enforcer": run(func(ctx context.Context) int {
			return enforcer.Command(ctx, os.Args[1:], os.Stdout, os.Stderr, testrun.Getenv)
		}),
	})
}

func TestScripts(t *testing.T) {
	fake := httptest.NewServer(fakeAggregator())
	t.Cleanup(fake.Close) // the scripts run after this function
	taken := httptest.NewUnstartedServer(http.NotFoundHandler())
	taken.Config.ReadHeaderTimeout = time.Second // what speaks Kafka there is hung up on
	taken.Start()
	t.Cleanup(taken.Close)
	scripts, err := filepath.Glob("testdata/*.txtar") // a golden file is none
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files:    scripts,
		Deadline: time.Now().Add(5 * time.Minute),
		Setup: func(e *testscript.Env) error {
			e.Setenv("AGGREGATOR", strings.TrimPrefix(fake.URL, "http://"))
			e.Setenv("TAKEN", strings.TrimPrefix(taken.URL, "http://"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
	})
}

// status N COMMAND… runs a command and wants that exit status.
func status(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 || len(args[0]) != 1 {
		ts.Fatalf("usage: status N COMMAND…")
	}
	got := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := err.(interface{ ExitCode() int })
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = string(rune('0' + exit.ExitCode()))
	}
	if got != args[0] {
		ts.Fatalf("the exit status is %s, want %s", got, args[0])
	}
}

// fakeAggregator answers for uid 42 with the query in it, and is out of order for others.
func fakeAggregator() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/explain", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("uid") {
		case "42":
			_, _ = io.WriteString(w, explained)
		case "48":
			_, _ = io.WriteString(w, explainedOthers)
		case "46":
			_, _ = io.WriteString(w, explainedStrict)
		case "47":
			_, _ = io.WriteString(w, explainedInDoubt)
		case "43":
			_, _ = io.WriteString(w, `{"key": {"uid": "43", "api": "`+r.URL.Query().Get("key.api")+`"}, "partition": 3, "rules": []}`)
		case "44":
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"status": 503, "detail": "the key's partition is changing its owner: try again"}`)
		case "45":
			_, _ = io.WriteString(w, `<html>`)
		default:
			if r.URL.Query().Get("limit") == "0" && r.URL.Query().Get("key.api") != "" {
				_, _ = io.WriteString(w, `{"key": {}, "partition": 0, "rules": [], "more": 1234}`)
				return
			}
			_, _ = io.WriteString(w, `{"key": {"asked": "`+r.URL.RawQuery+`"}, "partition": 0, "rules": []}`)
		}
	})
	mux.HandleFunc("GET /v1/rules", groupRules)
	mux.HandleFunc("GET /v1/exemptions", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("uid") {
		case "43":
			_, _ = io.WriteString(w, `{"exemptions": [], "partitions": [0]}`)
		case "44":
			_, _ = io.WriteString(w, `{"exemptions": [], "partitions": [0], "missing": [{"partition": 1, "reason": "it has no owner at the moment"}]}`)
		default:
			_, _ = io.WriteString(w, `{"exemptions": [{"from": "command", "key": {"uid": "42"}, "until": "2026-11-28T10:00:00Z", "reason": "load test", "by": "support", "on_behalf_of": "bob"},
 {"from": "rules", "key": {"api": "login"}, "in": "10.0.0.0/8", "rules": ["a", "b"], "until": null, "reason": "office"}], "more": 3, "partitions": [0]}`)
		}
	})
	mux.HandleFunc("GET /v1/hot-keys", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("limit") == "2" {
			_, _ = io.WriteString(w, `{"partitions": [{"partition": 0, "owner": "a:1", "events_per_second": 0, "share": 0}], "keys": [{"key": {"uid": "42"}, "partition": 0, "share": 1, "events_per_second": 0}]}`)
			return
		}
		if r.URL.Query().Get("limit") == "1" {
			_, _ = io.WriteString(w, `{"partitions": [], "keys": []}`)
			return
		}
		_, _ = io.WriteString(w, hot)
	})
	mux.HandleFunc("GET /v1/blocked", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("partition") + r.URL.Query().Get("rule") + r.URL.Query().Get("after") {
		case "0", "0search":
			_, _ = io.WriteString(w, `{"partitions": 2, "partition": 0, "keys": [{"key": {"uid": "1"}, "rules": ["search"]}], "next": "uid=1"}`)
		case "0uid=1", "0searchuid=1": // a page may be empty
			_, _ = io.WriteString(w, `{"partitions": 2, "partition": 0, "keys": [], "next": "uid=7"}`)
		case "0uid=7", "0searchuid=7":
			_, _ = io.WriteString(w, `{"partitions": 2, "partition": 0, "keys": [{"key": {"uid": "2"}, "rules": ["search"]}]}`)
		case "1":
			_, _ = io.WriteString(w, `{"partitions": 2, "partition": 1, "keys": [{"key": {"ip": "203.0.113.1"}, "rules": ["login"]}]}`)
		default:
			_, _ = io.WriteString(w, `{"partitions": 2, "partition": 1, "keys": []}`)
		}
	})
	mux.HandleFunc("POST /v1/dead-letters", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		takesAll(w, body)
	})
	mux.HandleFunc("POST /v1/commands", func(w http.ResponseWriter, r *http.Request) {
		var c struct {
			Command, Rule, For, Reason, By string
			Key                            map[string]string
			Keys                           []map[string]string
			Exact                          bool
		}
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil || c.By == "" || c.Reason == "" {
			http.Error(w, "no command", http.StatusBadRequest)
			return
		}
		switch {
		case c.Key["uid"] == "44":
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"status": 503, "detail": "the key's partition is changing its owner: nothing was done, try again"}`)
		case len(c.Keys) > 0:
			_, _ = io.WriteString(w, `{"id": "ID", "partition": 3, "keys": 1, "each": [], "verdicts": []}`)
		case c.Command == "reset" && c.Key["uid"] == "42" && !c.Exact:
			_, _ = io.WriteString(w, `{"id": "ID", "partition": 3, "keys": 2, "each": [{"uid": "42"}, {"uid": "42", "attrs.campaign": "summer sale"}], "verdicts": []}`)
		case c.Command == "reset" && c.Key["ip"] != "":
			_, _ = io.WriteString(w, `{"id": "ID", "partition": 3, "keys": 1, "each": [{"ip": "`+c.Key["ip"]+`"}], "verdicts": []}`)
		case c.Command == "exempt" && c.Key["uid"] == "43":
			until := "2026-11-28T10:00:00Z"
			_, _ = io.WriteString(w, `{"id": "ID", "partition": 3, "keys": 1, "each": [], "verdicts": [], "exemptions": [{"from": "command", "key": {"uid": "43", "attrs.campaign": "summer"}, "until": "`+until+`", "reason": "load test", "by": "alice"}, {"from": "rules", "key": {"uid": "43"}, "rules": ["search"], "until": null, "reason": "tester"}]}`)
		case c.Command == "exempt" && c.Key["uid"] == "42":
			_, _ = io.WriteString(w, `{"id": "ID", "partition": 3, "keys": 1, "each": [], "verdicts": [], "ended": 1}`)
		case c.Key["ip"] != "":
			_, _ = io.WriteString(w, `{"id": "ID", "partition": 3, "verdicts": [], "asked": "`+c.Key["ip"]+`"}`)
		case c.Command == "block":
			_, _ = io.WriteString(w, strings.ReplaceAll(`{"id": "ID", "partition": 3, "verdicts": [{"rule": "manual", "key": {"uid": "UID"}, "state": "block", "mode": "enforce", "action": "block", "apis": ["*"], "count": 0, "limit": 0, "since": "2026-11-21T10:00:00Z", "until": "2026-11-21T12:00:00Z", "seq": 7, "cause": {"id": "ID", "partition": 3, "offset": 5}}]}`, "UID", c.Key["uid"]))
		case c.Command == "forget" && c.Key["uid"] == "41": // a thousand of them
			one := `{"rule": "search", "key": {"uid": "41", "attrs.campaign": "x"}, "state": "clear", "mode": "enforce", "action": "block", "apis": ["search"], "count": 0, "limit": 0, "since": "2026-11-21T10:00:00Z", "until": "2026-11-21T10:00:00Z", "seq": 7, "cause": {"partition": 3, "offset": 5}}`
			_, _ = io.WriteString(w, `{"id": "ID", "partition": 3, "keys": 5000, "verdicts": [`+strings.Repeat(one+",", 999)+one+`]}`)
		case c.Command == "forget":
			_, _ = io.WriteString(w, `{"id": "ID", "partition": 3, "keys": 12, "verdicts": [{"rule": "search", "key": {"uid": "43", "attrs.campaign": "x"}, "state": "clear", "mode": "enforce", "action": "block", "apis": ["search"], "count": 0, "limit": 0, "since": "2026-11-21T10:00:00Z", "until": "2026-11-21T10:00:00Z", "seq": 7, "cause": {"partition": 3, "offset": 5}}]}`)
		case c.Command == "unblock" && c.Key["uid"] == "42":
			_, _ = io.WriteString(w, `{"id": "ID", "partition": 3, "verdicts": [{"rule": "search", "key": {"uid": "42"}, "state": "clear", "mode": "enforce", "action": "block", "apis": ["search"], "count": 0, "limit": 0, "since": "2026-11-21T10:00:00Z", "until": "2026-11-21T10:00:00Z", "seq": 7, "cause": {"partition": 3, "offset": 5}}]}`)
		default:
			_, _ = io.WriteString(w, `{"id": "ID", "partition": 3, "verdicts": []}`)
		}
	})
	return mux
}

// groupRules are those that uid 42 is explained by.
func groupRules(w http.ResponseWriter, _ *http.Request) {
	_ = json.NewEncoder(w).Encode(map[string]any{
		"version": 7, "file": "rules.yaml", "files": map[string][]byte{"vip.yaml": []byte("- {uid: boss, reason: our own}\n")},
		"source": `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  exempt: vip.yaml
  rules:
    - {name: search-combined, match: {api: search.*}, limit: 100, per: 1m, then: {block: 5m}}
    - {name: daily, match: {api: search.*}, limit: 1000, per: day, window: calendar, timezone: UTC, mode: shadow, then: {block: 5m}}
    - {name: pages, match: {api: search.*}, count: {distinct: attrs.page}, limit: 1000, per: day, window: calendar, timezone: UTC, then: {block: 5m}}
    - {name: exports, match: {api: export}, limit: 10, per: hour, window: calendar, timezone: UTC, then: {block: until-reset}}
`,
	})
}

const hot = `{"partitions": [{"partition": 0, "owner": "a:1", "events_per_second": 900, "share": 0.75}, {"partition": 1, "owner": "b:1", "events_per_second": 300.4, "share": 0.25}],
 "keys": [{"key": {"uid": "42", "attrs.campaign": "summer sale"}, "partition": 0, "share": 0.302, "events_per_second": 271.8}],
 "missing": [{"partition": 2, "reason": "it has no owner at the moment"}]}`

const explained = `{"key": {"uid": "42"}, "partition": 3, "hot": {"share": 0.314, "events_per_second": 1570.2}, "rules": [
 {"rule": "search-combined", "count": 101, "limit": 100, "from": "2026-11-21T10:00:00Z", "until": "2026-11-21T10:01:00Z", "frees_at": "2026-11-21T10:06:00Z", "frees": "the penalty's end", "mode": "enforce", "latest": "2026-11-21T10:00:30Z",
  "verdict": {"rule": "search-combined", "key": {"uid": "42"}, "state": "block", "mode": "enforce", "action": "block", "apis": ["search.*"], "count": 101, "limit": 100,
   "since": "2026-11-21T10:00:01.5Z", "until": "2026-11-21T10:05:01.5Z", "seq": 0, "cause": {"id": "01J8Z3K4M5", "partition": 3, "offset": 118}}},
 {"rule": "daily", "count": 3, "limit": 1000, "from": "2026-11-21T00:00:00Z", "until": "2026-11-22T00:00:00Z", "frees_at": null, "mode": "shadow", "latest": "2026-11-21T10:00:30Z", "verdict": null},
 {"rule": "pages", "count": 1034, "estimated": true, "limit": 0, "tier": 2, "from": "2026-11-21T00:00:00Z", "until": "2026-11-22T00:00:00Z", "frees_at": null, "exempt": true, "mode": "enforce", "latest": "2026-11-21T10:00:30Z", "verdict": null},
 {"rule": "exports", "count": 12, "limit": 10, "from": "2026-11-21T10:00:00Z", "until": "2026-11-21T11:00:00Z", "frees_at": "2026-11-21T11:00:00Z", "frees": "the window's end", "mode": "enforce", "latest": "2026-11-21T10:00:30Z", "verdict": null,
  "candidate": {"rule": "exports/candidate", "key": {"uid": "42"}, "state": "block", "mode": "shadow", "action": "block", "apis": ["export"], "count": 9, "limit": 8, "since": "2026-11-21T10:00:00Z", "until": "2026-11-21T11:00:00Z", "seq": 0, "cause": {"partition": 3, "offset": 118}}}
]}`

const explainedOthers = `{"key": {"uid": "48"}, "partition": 3, "hot": {"share": 1, "events_per_second": 0.01}, "rules": [], "others": [
 {"key": {"uid": "48", "attrs.campaign": "summer sale"}, "partition": 3, "rules": [
  {"rule": "ads", "count": 3, "limit": 100, "from": "2026-11-21T00:00:00Z", "until": "2026-11-22T00:00:00Z", "frees_at": null, "mode": "enforce", "latest": "2026-11-21T10:00:30Z", "verdict": null,
   "exempt": true, "exempt_by": [{"from": "command", "key": {"uid": "48"}, "until": "2026-11-22T10:00:00Z", "reason": "load test", "by": "alice"}, {"from": "rules", "key": {}, "in": "office", "rules": ["ads"], "until": null, "reason": "our own"}]}]},
 {"key": {"uid": "48", "api": "login"}, "partition": 3, "rules": [
  {"rule": "logins", "count": 1, "limit": 5, "from": "2026-11-21T00:00:00Z", "until": "2026-11-22T00:00:00Z", "frees_at": null, "mode": "enforce", "latest": "2026-11-21T10:00:30Z", "verdict": null}]}],
 "more": 7, "missing": [{"partition": 4, "reason": "it has no owner at the moment"}]}`

const explainedStrict = `{"key": {"uid": "46"}, "partition": 2, "strict": {"grants": true, "doubt_since": null}, "rules": [
 {"rule": "sms", "window": "sliding", "count": 2, "limit": 3, "from": "2026-11-21T10:00:00Z", "until": "2026-11-21T11:00:00Z", "frees_at": null, "mode": "enforce", "latest": "2026-11-21T10:00:30Z", "verdict": null,
  "strict": {"level": 2, "held": 1, "used": 3, "limit": 3, "remaining": 0, "permits": 1, "oldest": "2026-11-21T10:00:31Z", "lost_at": "2026-11-21T10:01:01Z", "lost": "count", "resets_at": "2026-11-21T11:00:31Z"}},
 {"rule": "coupons", "window": "sliding", "count": 0, "limit": 0, "from": "2026-11-21T10:00:00Z", "until": "2026-11-21T11:00:00Z", "frees_at": null, "mode": "enforce", "latest": null, "verdict": null,
  "strict": {"level": 0, "held": 0, "used": 0, "limit": 0, "remaining": 0, "permits": 0, "oldest": null, "lost_at": null, "lost": "count", "resets_at": null}},
 {"rule": "search", "window": "sliding", "count": 2, "limit": 3, "from": "2026-11-21T10:00:00Z", "until": "2026-11-21T11:00:00Z", "frees_at": null, "mode": "enforce", "latest": null, "verdict": null},
 {"rule": "exports", "window": "in-flight", "count": 2, "limit": 3, "from": null, "until": null, "frees_at": null, "mode": "enforce", "latest": null, "verdict": null,
  "strict": {"level": 0, "held": 2, "used": 2, "limit": 3, "remaining": 1, "permits": 2, "oldest": "2026-11-21T10:00:31Z", "lost_at": "2026-11-21T10:15:31Z", "lost": "return", "resets_at": null}}
]}`

const explainedInDoubt = `{"key": {"uid": "47"}, "partition": 2, "strict": {"grants": false, "doubt_since": "2026-11-21T10:00:00Z", "why": "Redis has not answered for 15s", "error": "ask Redis about this key: connection refused"}, "rules": [
 {"rule": "exports", "window": "in-flight", "count": 0, "limit": 3, "from": null, "until": null, "frees_at": null, "mode": "enforce", "latest": null, "verdict": null}
]}`
