package deploy

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The alerts go by metrics that there are, and the page has the same expressions as the file.
func TestAlertsGoByMetricsThatThereAre(t *testing.T) {
	rules := text(t, "alerts.yaml")
	reference, page := text(t, "../docs/reference.md"), text(t, "../docs/operations.md")
	names := regexp.MustCompile(`tallygate_[a-z_]+`).FindAllString(rules, -1)
	if len(names) < 7 {
		t.Fatalf("%d metrics in the alerts", len(names))
	}
	for _, name := range names {
		if !strings.Contains(reference, "`"+name) {
			t.Errorf("%s is not in the reference", name)
		}
	}
	expressions := regexp.MustCompile(`(?m)^ +expr: (.*)$`).FindAllStringSubmatch(rules, -1)
	for _, e := range expressions {
		if !strings.Contains(page, "`"+e[1]+"`") {
			t.Errorf("docs/operations.md does not have %s", e[1])
		}
	}
}

func text(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
