package rulewords

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/internal/tools/input"
	"github.com/tallygate/tallygate/rules"
)

func compile(t *testing.T, path string) *rules.Set {
	t.Helper()
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.CompileWith(path, src, input.Beside(path))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestWords(t *testing.T) {
	var got []string
	for _, name := range []string{"search-combined", "stacked-writes", "api-rate", "exports-at-once", "upload-bandwidth", "logins-in-a-row", "account-seats", "customer-quotas", "exports", "sms-per-day"} {
		for _, r := range compile(t, "../../../testdata/rules/"+name+".yaml").All() {
			got = append(got, Mode(r)+": "+strings.Join(Limits(r), "; ")+": "+Then(r))
		}
	}
	want := []string{
		"enforce: at most 100 events per uid in any 1m: block for 5m; it covers search.query, search.suggest",
		"enforce: at most 20 events per uid each 1s; at most 1000 events per uid in any 1h: block until the count is below the limit; it covers order.create, order.update",
		"enforce: 50 events per uid each 1s, and at most 100 at once: block until the count is below the limit; it covers *",
		"strict: at most 3 events per attrs.customer under way at once: a request that would be over gets no permit",
		"strict: at most 10 events per attrs.customer each calendar day in UTC: block until the count is below the limit; it covers report.export",
		"enforce: at most 1048576 of attrs.bytes per uid in any 1s: throttle for 10s; it covers upload.*",
		"enforce: at most 5 events per uid in any 1w: block for 1h; it covers login",
		"strict: at most 5 events per attrs.account under way at once (2 tiers): a request that would be over gets no permit",
		"enforce: at most 100 events per attrs.customer each calendar day in UTC (or what attrs.quota says, 2 keys with limits of their own): block until the count is below the limit; it covers v1.*",
		"enforce: at most 10 events per uid in any 1h (tried beside: 5): block for 10m; it covers report.export",
		"shadow: at most 1000000 of attrs.rows per uid in any 1d: block for 1h; it covers report.export",
		"strict: at most 20 events per attrs.number each calendar day in Europe/Berlin: block until the count is below the limit; it covers sms.send",
		"strict: at most 1000 events per attrs.customer each calendar day in Europe/Berlin: block until the count is below the limit; it covers sms.send",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(- want)\n%s", d)
	}
}

// There are words for all that a rule file can say.
func TestEveryRuleHasWords(t *testing.T) {
	files, _ := filepath.Glob("../../../testdata/rules/*.yaml")
	for _, path := range append(files, "../../../rules/testdata/kinds.yaml") {
		if strings.HasSuffix(path, "_test.yaml") {
			continue
		}
		for _, r := range compile(t, path).All() {
			text := strings.Join(Limits(r), "; ") + Then(r)
			if len(Limits(r)) == 0 || Then(r) == "" || strings.Contains(text, "  ") || strings.Contains(text, "kind ") {
				t.Errorf("%s: %q", r.Name, text)
			}
		}
	}
}
