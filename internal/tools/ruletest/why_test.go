package ruletest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const whyRules = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: t}
spec:
  rules:
    - {name: logins, match: {api: login, outcome: [denied, failure]}, reset_on: {api: login, outcome: success}, limit: 3, per: 10m, then: {block: 15m, apis: [login]}}
    - {name: searches, match: {api: search.*}, limit: 5, per: 1m, window: tumbling, then: {block: until-reset}}
    - {name: shadowed, match: {api: order.create}, limit: 1, per: 1m, mode: shadow, then: {block: 5m}}
    - {name: nets, key: ip/24/56, match: {api: login}, limit: 2, per: 1h, then: {block: 1h}}
    - {name: night, match: {api: order.create}, when: attrs.n != nil and attrs.n > 10, limit: 1, per: 1h, then: {block: 1h}}
    - {name: files, match: {api: [get, put]}, refunds: true, limit: 1, per: 1h, then: {block: 1h}}
    - {name: seen, match: {api: watch}, window: session, gap: 10m, limit: 3, then: {block: 1h}}
`

// A failing test says of each event why it did not count, as trace does, and what is in force instead.
func TestAFailureSaysWhyEventsDidNotCount(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(whyRules), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ events, expect, want string }{
		"outcome":  {`{at: 0s, uid: u, api: login, outcome: fail, times: 4, every: 1s}`, `{at: 4s, uid: u, api: login, verdict: block, rule: logins}`, "4 events of line 4: not counted by logins: outcome is fail, not denied or failure"},
		"any rule": {`{at: 0s, uid: u, api: login, outcome: fail, times: 4, every: 1s}`, `{at: 4s, uid: u, api: login, verdict: block}`, "4 events of line 4: not counted by logins: outcome is fail, not denied or failure"},
		"covers":   {`{at: 0s, uid: u, api: login, outcome: denied, times: 4, every: 1s}`, `{at: 5s, uid: u, api: order.create, verdict: block, rule: logins}`, "block by logins is in force for login, and not for order.create"},
		"reset":    {`{at: 3s, uid: u, api: login, outcome: success}`, `{at: 5s, uid: u, api: login, verdict: block, rule: logins}`, "the event of line 4: not counted by logins: it empties the count at 2026-01-05T00:00:03Z"},
		"shadow":   {`{at: 0s, uid: u, api: order.create, times: 2, every: 1s}`, `{at: 5s, uid: u, api: order.create, verdict: block, rule: shadowed}`, "block by shadowed is in force in shadow mode: `mode: shadow` expects that"},
		"enforced": {`{at: 0s, uid: u, api: search.q, times: 6}`, `{at: 5s, uid: u, api: search.q, verdict: block, rule: searches, mode: shadow}`, "block by searches is in force, and not in shadow mode"},
		"when":     {`{at: 0s, uid: u, api: order.create, attrs: {n: 5}, times: 3, every: 1s}`, `{at: 5s, uid: u, api: order.create, verdict: block, rule: night}`, "3 events of line 4: not counted by night: when: attrs.n > 10 is false (attrs.n is 5)"},
		"id":       {`{at: 0s, uid: u, id: e, api: login, outcome: denied, times: 4, every: 1s}`, `{at: 5s, uid: u, api: login, verdict: block, rule: logins}`, "3 events of line 4: not counted by logins: the key has counted its id before"},
		"too old":  {`{at: 0s, uid: u, api: login, outcome: denied, arrives: 2h, times: 4, every: 1s}`, `{at: 3h, uid: u, api: login, verdict: block, rule: logins}`, "4 events of line 4: not counted by logins: too old: it happened 2h before its broker time"},
		"limited":  {`{at: 0s, uid: u, api: search.q, outcome: limited, times: 6}`, `{at: 10s, uid: u, api: search.q, verdict: block, rule: searches}`, "6 events of line 4: not counted by searches: outcome is limited"},
		"key":      {`{at: 0s, uid: v, api: search.q, times: 6}`, `{at: 10s, uid: u, api: search.q, verdict: block, rule: searches}`, "6 events of line 4: not counted by searches: it counts under uid=v"},
		"no key":   {`{at: 0s, uid: u, api: login, times: 3}`, `{at: 10s, ip: 192.0.2.1, api: login, verdict: block, rule: nets}`, "3 events of line 4: not counted by nets: no ip/24/56"},
		"refund":   {`{at: 0s, uid: u, api: get, cost: -1, refunds: x}`, `{at: 10s, uid: u, api: get, verdict: block, rule: files}`, "the key remembers no event of the id that it takes back"},
		"late":     {"{at: 20m, uid: u, api: watch, times: 3}\n      - {at: 0s, uid: u, api: watch, arrives: 21m}", `{at: 22m, uid: u, api: watch, verdict: block, rule: seen}`, "the event of line 5: not counted by seen: it happened before the window"},
		"left":     {`{at: 0s, uid: u, api: search, times: 2}`, `{at: 1s, uid: u, api: search.q, left: 3, rule: searches}`, "2 events of line 4: not counted by searches: api is search, not search.*"},
	} {
		text := "rule_files: [rules.yaml]\ntests:\n  - {name: n, events: [\n      " + strings.ReplaceAll(strings.TrimPrefix(c.events, "- "), "\n      - ", ",\n") + "],\n     expect: [" + c.expect + "]}\n"
		f, err := Parse(filepath.Join(dir, "rules_test.yaml"), []byte(text), 1000)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r := f.Run(t.Context(), OnDisk, func(string) bool { return true })
		if r.Err != nil || len(r.Results) != 1 || len(r.Results[0].Failures) != 1 {
			t.Errorf("%s: %+v", name, r)
			continue
		}
		if got := r.Results[0].Failures[0].Text(); !strings.Contains(got, c.want) {
			t.Errorf("%s: want %s\n%s", name, c.want, got)
		}
	}
}

func TestMomentsHaveFractions(t *testing.T) {
	for text, want := range map[string]int64{"59.999s": 59_999_000, "1m0.5s": 60_500_000, "0.000001s": 1, "0.1s": 100_000, "2m": 120_000_000, "0": 0} {
		if got, ok := span(text); !ok || int64(got) != want {
			t.Errorf("%s: %v, %v", text, int64(got), ok)
		}
	}
	for _, text := range []string{"", ".", "1.s", ".5s", "1.5m", "1.5", "1.5ms", "0.0000001s", "1.-5s", "-1.5s", "1.5s2", "1m1.5h"} {
		if got, ok := span(text); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
}
