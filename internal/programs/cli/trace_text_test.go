package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/programs/cli"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

const toldRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - {name: calls, match: {api: x, outcome: success}, limit: 2, per: day, window: calendar, tiers: [{when: 'attrs.plan == "pro"', limit: 8}], then: {block: until-reset}}
    - {name: quota, key: attrs.shop, match: {api: x}, limit: {from: attrs.quota, else: 2, most: 10}, per: 1h, window: tumbling, then: {block: until-reset}}
    - {name: plain, match: {api: x, outcome: success}, limit: 9, per: 1h, window: tumbling, then: {block: 5m}}
`

// What a denial tells is said of each rule, and why where it tells nothing: it is neither "counted" nor silent.
func TestTraceOfADenialSaysWhatItTells(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(toldRules), 0o600); err != nil {
		t.Fatal(err)
	}
	const shop = `"uid":"42","api":"x","attrs":{"shop":"7"`
	events := []struct{ event, want string }{
		{`{"time":"2026-11-21T10:00:00Z",` + shop + `},"outcome":"success"}`, `
			calls  counted under uid=42: 0, now 1 of 2
			plain  counted under uid=42: 0, now 1 of 9
			quota  counted under attrs.shop=7: 0, now 1 of 2`},
		{`{"time":"2026-11-21T10:00:01Z",` + shop + `},"outcome":"success"}`, `
			calls  counted under uid=42: 1, now 2 of 2; block until 2026-11-22T00:00:00Z
			plain  counted under uid=42: 1, now 2 of 9
			quota  counted under attrs.shop=7: 1, now 2 of 2; block until 2026-11-21T11:00:00Z`},
		{`{"time":"2026-11-21T10:00:02Z",` + shop + `},"outcome":"limited"}`, `
			calls  not counted: outcome is limited, not success, and it does not say which limit its key has
			quota  not counted: outcome is limited, which match does not name: a limit denied it, and it does not say which limit its key has
			plain  not counted: outcome is limited, not success`},
		{`{"time":"2026-11-21T10:00:03Z",` + shop + `,"plan":"free"},"outcome":"limited"}`, `
			calls  tells the limit of uid=42, and counts nothing: 2 of 2; block until 2026-11-22T00:00:00Z is in force
			quota  not counted: outcome is limited, which match does not name: a limit denied it, and it does not say which limit its key has
			plain  not counted: outcome is limited, not success`},
		{`{"time":"2026-11-21T10:00:05Z",` + shop + `,"plan":"pro","quota":9},"outcome":"limited"}`, `
			calls  tells the limit of uid=42, and counts nothing: 2 of 8 (tier 1); its verdict ends
			quota  tells the limit of attrs.shop=7, and counts nothing: 2 of 9 (attrs.quota); its verdict ends
			plain  not counted: outcome is limited, not success`},
		{`{"time":"2026-11-21T10:00:04Z",` + shop + `,"plan":"free","quota":4},"outcome":"limited"}`, `
			calls  tells nothing of uid=42, which has 2 of 8 (tier 1): a later event has told its limit
			quota  tells nothing of attrs.shop=7, which has 2 of 9 (attrs.quota): a later event has told its limit
			plain  not counted: outcome is limited, not success`},
		{`{"time":"2026-11-21T10:00:00Z",` + shop + `,"plan":"pro","quota":9},"outcome":"limited"}`, `
			calls  tells nothing of uid=42, which has 2 of 8 (tier 1): a later event has told its limit
			quota  tells nothing of attrs.shop=7, which has 2 of 9 (attrs.quota): a later event has told its limit
			plain  not counted: outcome is limited, not success`},
		{`{"time":"2026-11-21T10:00:06Z","uid":"new","api":"x","attrs":{"plan":"pro"},"outcome":"limited"}`, `
			calls  tells nothing of uid=new, which has 0 of 2: nothing of it counts
			plain  not counted: outcome is limited, not success
			quota  not counted: outcome is limited, which match does not name: a limit denied it; no attrs.shop`},
		{`{"time":"2026-11-22T10:00:00Z",` + shop + `,"plan":"free","quota":3},"outcome":"limited"}`, `
			calls  tells nothing of uid=42, which has 0 of 8 (tier 1): nothing of it counts
			quota  tells nothing of attrs.shop=7, which has 0 of 9 (attrs.quota): nothing of it counts
			plain  not counted: outcome is limited, not success`},
	}
	var in strings.Builder
	for _, e := range events {
		in.WriteString(e.event + "\n")
	}
	var out, errs bytes.Buffer
	if status := cli.Main(testrun.Context(t), []string{"trace", "--rules", rules, "--all", "-"}, strings.NewReader(in.String()), &out, &errs, testrun.NoEnv); status != 0 {
		t.Fatalf("status %d: %s", status, &errs)
	}
	blocks := strings.Split(strings.TrimSpace(out.String()), "\n\n")
	if len(blocks) != len(events) {
		t.Fatalf("%d events in:\n%s", len(blocks), &out)
	}
	for i, e := range events {
		_, got, _ := strings.Cut(blocks[i], "\n")
		want := strings.ReplaceAll(strings.TrimPrefix(e.want, "\n"), "\t\t\t", "  ")
		if got != want {
			t.Errorf("%s\n%s\nwant\n%s", e.event, got, want)
		}
	}
}
