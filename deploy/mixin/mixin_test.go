package main

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

func TestCommittedFilesAreWhatTheSourceGives(t *testing.T) {
	files, err := compile()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if have, err := os.ReadFile(name); err != nil || string(have) != string(want) {
			t.Errorf("%s is not what the source gives (%v): run `make mixin`", name, err)
		}
	}
}

// The tests of the programs go by the same alerts as users' installations, only with shorter waits.
func TestQuickAlertsAreTheSame(t *testing.T) {
	alerts, quick := mustAlerts(t, `import 'mixin.libsonnet'`), mustAlerts(t, `import 'quick.libsonnet'`)
	numbers := regexp.MustCompile(`\[[0-9smh]+\]| > [0-9.]+`)
	if len(alerts) < 12 || len(alerts) != len(quick) {
		t.Fatalf("%d alerts, and %d quick ones", len(alerts), len(quick))
	}
	for i, a := range alerts {
		if numbers.ReplaceAllString(a.Expr, "") != numbers.ReplaceAllString(quick[i].Expr, "") || a.Alert != quick[i].Alert {
			t.Errorf("%s is\n%s\nand the quick one\n%s", a.Alert, a.Expr, quick[i].Expr)
		}
		if quick[i].For != "" {
			t.Errorf("the quick %s waits", a.Alert)
		}
	}
}

// Grafana's own types take the dashboard, and know each field.
func TestTheDashboardIsOneOfGrafana(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard.Dashboard
	if wrong := mistakesOf(d.UnmarshalJSONStrict(text)); wrong != "" {
		t.Error(wrong)
	}
	if len(d.Panels) < 20 {
		t.Errorf("%d panels", len(d.Panels))
	}
	broken := strings.Replace(string(text), `"legendFormat"`, `"legendFromat"`, 1)
	if wrong := mistakesOf(new(dashboard.Dashboard).UnmarshalJSONStrict([]byte(broken))); !strings.Contains(wrong, "legendFromat") {
		t.Errorf("a misspelt field goes unnoticed: %s", wrong)
	}
}

// mistakesOf is what the library found: it returns an empty list as an error, too.
func mistakesOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Each query is PromQL, and the installation's selector reaches each vector in it.
func TestEveryQueryParsesAndIsOfTheInstallation(t *testing.T) {
	const shop = ` + { _config+:: { selector: 'cluster="shop"' } }`
	var queries []string
	for _, a := range mustAlerts(t, `(import 'mixin.libsonnet')`+shop) {
		queries = append(queries, a.Expr)
	}
	text, err := evaluate(`((import 'mixin.libsonnet')` + shop + `).grafanaDashboards['tallygate.json']`)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Panels     []struct{ Targets []struct{ Expr string } }
		Templating struct {
			List []struct{ Definition string }
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, p := range file.Panels {
		for _, target := range p.Targets {
			queries = append(queries, target.Expr)
		}
	}
	values := regexp.MustCompile(`^label_values\((.*), [a-z]+\)$`)
	for _, v := range file.Templating.List {
		if m := values.FindStringSubmatch(v.Definition); m != nil {
			queries = append(queries, m[1])
		}
	}
	if len(queries) < 80 {
		t.Errorf("%d queries", len(queries))
	}
	for _, query := range queries {
		expr, err := parser.ParseExpr(strings.ReplaceAll(query, "$__rate_interval", "5m"))
		if err != nil {
			t.Errorf("%v\n%s", err, query)
			continue
		}
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			if v, ok := n.(*parser.VectorSelector); ok && !slices.ContainsFunc(v.LabelMatchers, isShop) {
				t.Errorf("%s asks for all installations, in\n%s", v, query)
			}
			return nil
		})
	}
}

func isShop(m *labels.Matcher) bool { return m.Name == "cluster" && m.Value == "shop" }

func mustAlerts(t *testing.T, mixin string) (all []Alert) {
	t.Helper()
	rules, err := alertsOf(mixin)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		all = append(all, g.Rules...)
	}
	return all
}
