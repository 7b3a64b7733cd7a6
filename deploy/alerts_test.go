package deploy

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/internal/servers"
)

// The alerts go by metrics that there are, and the page has the same expressions as the file.
func TestAlertsGoByMetricsThatThereAre(t *testing.T) {
	rules := text(t, "alerts.yaml")
	reference, page := text(t, "../docs/reference/metrics.md"), text(t, "../docs/operations.md")
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
		if !strings.Contains(page, "`"+strings.ReplaceAll(e[1], "|", `\|`)+"`") { // a bare | ends a table's cell
			t.Errorf("docs/operations.md does not have %s", e[1])
		}
	}
}

// Prometheus itself reads the alerts; each fires in its case, at its moment, and none on a good day.
func TestAlertsFireInTheirCases(t *testing.T) {
	var tests struct {
		Tests []struct {
			Name   string
			Alerts []struct {
				Name string `yaml:"alertname"`
				Want []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(text(t, "alerts_test.yaml")), &tests); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		for _, a := range test.Alerts {
			fires[a.Name] = fires[a.Name] || len(a.Want) > 0
			silent[a.Name] = silent[a.Name] || test.Name == "healthy" && len(a.Want) == 0
		}
	}
	alerts := regexp.MustCompile(`(?m)^ +- alert: (.*)$`).FindAllStringSubmatch(text(t, "alerts.yaml"), -1)
	for _, a := range alerts {
		if !fires[a[1]] || !silent[a[1]] {
			t.Errorf("alerts_test.yaml: %s fires %v, is silent on a good day %v; want both", a[1], fires[a[1]], silent[a[1]])
		}
	}
	if len(alerts) != len(fires) {
		t.Errorf("%d alerts, and tests of %d", len(alerts), len(fires))
	}
	promtool := servers.Program(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}, {"check", "config", "prometheus.yml"}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
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
