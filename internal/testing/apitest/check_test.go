package apitest_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/internal/testing/apitest"
)

// What differs from the document is found, and what is as it says is not.
func TestDifferencesAreFound(t *testing.T) {
	const (
		decision = `{"allowed":true,"verdicts":[],"staleness":"1s"}`
		problem  = `{"type":"about:blank","title":"Bad Request","status":400,"detail":"api is required"}`
		page     = `{"verdicts":[]}`
	)
	d := apitest.Open(t, apidocs.Enforcer)
	for _, c := range []struct {
		request, body string
		status        int
		header        string
		answer        string
		want          string // "": nothing is wrong
	}{
		{"POST /v1/check", `{"api":"a"}`, 200, "Content-Type: application/json", decision, ""},
		{"POST /v1/check", `{"api":"a","uid":42,"attrs":{"x":null}}`, 200, "Content-Type: application/json; charset=utf-8", decision, ""},
		{"POST /v1/check", `{}`, 400, "Content-Type: application/problem+json", problem, ""},
		{"POST /v1/check", `{}`, 200, "Content-Type: application/json", decision, "a request's body that is accepted"},
		{"POST /v1/check", `{"api":"a","user":"42"}`, 200, "Content-Type: application/json", decision, "a request's body that is accepted"},
		{"POST /v1/check?x=1", `{"api":"a"}`, 200, "Content-Type: application/json", decision, "parameters are accepted, and not described"},
		{"POST /v1/check", `{"api":"a"}`, 200, "Content-Type: application/json", `{"allowed":true,"verdicts":[]}`, "staleness"},
		{"POST /v1/check", `{"api":"a"}`, 200, "Content-Type: application/json", strings.Replace(decision, "{", `{"new":1,`, 1), "additional properties 'new'"},
		{"POST /v1/check", `{"api":"a"}`, 200, "Content-Type: text/plain", decision, `"text/plain" is not described`},
		{"POST /v1/check", `{"api":"a"}`, 200, "Content-Type: application/json\nX-New: 1", decision, "X-New is not described"},
		{"POST /v1/check", `{}`, 422, "Content-Type: application/problem+json", problem, "422 is not described"},
		{"POST /v1/check", `{}`, 400, "Content-Type: application/problem+json", `{"detail":"x"}`, "missing properties"},
		{"GET /v1/check", "", 405, "Content-Type: application/problem+json\nAllow: POST", problem, ""},
		{"GET /v1/check", "", 405, "Content-Type: application/problem+json\nAllow: GET, POST", problem, "the server allows"},
		{"GET /v1/check", "", 200, "Content-Type: application/json", decision, "want 405"},
		{"GET /v1/nothing", "", 404, "Content-Type: application/problem+json", problem, ""},
		{"GET /v1/nothing", "", 404, "Content-Type: text/plain", "not found", "want a problem"},
		{"GET /v1/nothing", "", 200, "Content-Type: application/json", page, "want 404"},
		{"GET /v1/blocklist?limit=7&prefix=a", "", 200, "Content-Type: application/json", page, ""},
		{"HEAD /v1/blocklist", "", 200, "Content-Type: application/json", "", ""},
		{"GET /v1/blocklist?limit=x", "", 200, "Content-Type: application/json", page, "the parameter limit"},
		{"GET /v1/blocklist?limit=1001", "", 200, "Content-Type: application/json", page, "the parameter limit"},
		{"GET /v1/blocklist", "", 401, "Content-Type: application/problem+json", problem, "Www-Authenticate"},
		{"GET /v1/quota?uid=1&attrs.x=2", "", 200, "Content-Type: application/json\nCache-Control: no-store", `{"quotas":[],"staleness":"1s"}`, ""},
		{"GET /v1/quota?user=1", "", 200, "Content-Type: application/json\nCache-Control: no-store", `{"quotas":[],"staleness":"1s"}`, "invalid propertyName"},
		{"GET /v1/quota?uid=1", "", 200, "Content-Type: application/json", `{"quotas":[],"staleness":"1s"}`, "no Cache-Control"},
		{"PURGE /v1/forward-auth", "", 204, "", "", ""},
		{"GET /v1/forward-auth", "", 204, "", "x", "has a body"},
		{"GET /v1/forward-auth", "", 420, "Content-Type: application/problem+json\nCache-Control: no-store\nRetry-After: 2", problem, ""},
		{"GET /v1/forward-auth", "", 429, "Content-Type: application/problem+json\nCache-Control: no-store\nRetry-After: soon", problem, "Retry-After"},
		{"DELETE /v1/ext-authz/a//b?c=d", "", 200, "", "", ""},
	} {
		header := http.Header{}
		for line := range strings.Lines(c.header) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			header.Set(name, value)
		}
		method, target, _ := strings.Cut(c.request, " ")
		err := d.Check(httptest.NewRequest(method, target, nil), []byte(c.body), c.status, header, []byte(c.answer))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s is answered %d %s: %v, want %q", c.request, c.body, c.status, c.header, err, c.want)
		}
	}
	if missing := d.Unseen(); slices.Contains(missing, "POST /v1/check 200") || !slices.Contains(missing, "POST /v1/check 413") {
		t.Errorf("not seen: %v", missing)
	}
}

func TestRecordsAreHeldAgainstTheirMessages(t *testing.T) {
	const verdict = `{"rule":"r","key":{"uid":"42"},"state":"block","mode":"enforce","action":"block","apis":["*"],"count":1,"limit":1,"since":"2026-11-21T10:00:01Z","until":"2026-11-21T10:05:01Z","seq":1,"cause":{"partition":0,"offset":0}}`
	letter := map[string][]string{"reason": {"no-api"}, "detail": {"x"}, "topic": {"t"}, "partition": {"3"}, "offset": {"118"}, "index": {"0", "7"}, "header:x": {"\xff"}}
	with := func(name string, values ...string) map[string][]string {
		headers := map[string][]string{name: values}
		for n, v := range letter {
			if n != name {
				headers[n] = v
			}
		}
		return headers
	}
	for _, c := range []struct {
		channel, key, value string
		headers             map[string][]string
		good                bool
	}{
		{"verdicts", "uid=42|r", verdict, nil, true},
		{"verdicts", "uid=42|r", "", nil, true},
		{"verdicts", "uid=42", verdict, nil, false},
		{"verdicts", "uid=42|r", strings.Replace(verdict, "block", "blocked", 1), nil, false},
		{"deadLetters", "k", "\xff", letter, true},
		{"deadLetters", "", "", with("index", "-1"), true},
		{"deadLetters", "", "", with("index", "0", "x"), false},
		{"deadLetters", "", "", with("reason", "why"), false},
		{"deadLetters", "", "", with("new", "1"), false},
		{"events", "42", `{"api":"a"}`, nil, true},
		{"events", "", `[{"api":"a"},{"api":"b"}]`, nil, true},
		{"events", "42", `[{"api":""}]`, nil, false},
		{"audit", "uid=42", `{"type":"command"}`, nil, false},
		{"nothing", "", "", nil, false},
	} {
		value := []byte(c.value)
		if c.value == "" {
			value = nil
		}
		if err := apitest.CheckRecord(c.channel, []byte(c.key), value, c.headers); (err == nil) != c.good {
			t.Errorf("%s %q %s %q: %v", c.channel, c.key, c.value, c.headers, err)
		}
	}
}
