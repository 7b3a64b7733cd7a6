package deploy

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// alert is one of alerts.yaml.
type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alert } }
	read(t, "alerts.yaml", &file)
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 12 {
		t.Fatalf("%d alerts", len(all))
	}
	return all
}

var metricName = regexp.MustCompile(`\b(?:tallygate|go|process)_[a-z_]+`)

// documented are the metrics in the reference.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, name := range regexp.MustCompile("`(tallygate_[a-z_]+)").FindAllStringSubmatch(text(t, "../docs/reference/metrics.md"), -1) {
		known[name[1]] = true
	}
	return known
}

// Each alert goes by metrics that there are, says how bad it is and what it has measured, and leads to a
// section that says what to do.
func TestEachAlertIsWhole(t *testing.T) {
	known, sections := documented(t), sectionsOf(text(t, "../docs/runbooks.md"))
	for _, a := range alerts(t) {
		names := metricName.FindAllString(a.Expr, -1)
		if len(names) == 0 && !strings.HasPrefix(a.Expr, "up{") {
			t.Errorf("%s asks for no metric: %s", a.Alert, a.Expr)
		}
		for _, name := range names {
			if !known[strings.TrimSuffix(name, "_bucket")] {
				t.Errorf("%s: %s is not in the reference", a.Alert, name)
			}
		}
		if s := a.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s has the severity %q", a.Alert, s)
		}
		if a.For != "" {
			if _, err := time.ParseDuration(a.For); err != nil {
				t.Errorf("%s: %v", a.Alert, err)
			}
		}
		url, anchor, _ := strings.Cut(a.Annotations["runbook_url"], "#")
		if section := sections[a.Alert]; !strings.HasSuffix(url, "/docs/runbooks.md") || anchor != strings.ToLower(a.Alert) || section == "" {
			t.Errorf("%s leads to %s#%s, of which the page has %d bytes", a.Alert, url, anchor, len(section))
		}
		for _, part := range []string{"**Symptom.**", "**Look at.**", "**Do.**", "**Expect.**"} {
			if !strings.Contains(sections[a.Alert], part) {
				t.Errorf("the runbook of %s has no %s", a.Alert, part)
			}
		}
	}
	for title := range sections {
		if strings.HasPrefix(title, "Tallygate") && !slices.ContainsFunc(alerts(t), func(a alert) bool { return a.Alert == title }) {
			t.Errorf("the page has a section on %s, which is no alert", title)
		}
	}
}

// sectionsOf are a page's sections by their headings, of any level.
func sectionsOf(page string) map[string]string {
	sections := map[string]string{}
	for _, section := range regexp.MustCompile(`(?m)^#+ `).Split(page, -1) {
		title, body, _ := strings.Cut(section, "\n")
		sections[title] = body
	}
	return sections
}

// Annotations are templates that Prometheus can fill; the number that fired is in the description, but
// of what is absent.
func TestAnnotationsTellTheNumber(t *testing.T) {
	shown := func(float64) string { return "NUMBER" }
	funcs := template.FuncMap{"humanize": shown, "humanizeDuration": shown, "humanizePercentage": shown}
	data := map[string]string{}
	for _, label := range []string{"job", "instance", "partition", "reason", "rule", "option", "receiver", "what", "name", "client"} {
		data[label] = "LABEL"
	}
	for _, a := range alerts(t) {
		for _, which := range []string{"summary", "description"} {
			parsed, err := template.New(a.Alert).Option("missingkey=error").Funcs(funcs).Parse(`{{ $labels := .labels }}{{ $value := .value }}` + a.Annotations[which])
			if err != nil {
				t.Errorf("%s: %v", a.Alert, err)
				continue
			}
			var out strings.Builder
			if err := parsed.Execute(&out, map[string]any{"labels": data, "value": 41.5}); err != nil {
				t.Errorf("%s: %v", a.Alert, err)
			}
			unmeasured := strings.HasPrefix(a.Expr, "absent(") || strings.HasSuffix(a.Expr, "== 0")
			if told := out.String(); which == "description" && !unmeasured && !strings.Contains(told, "NUMBER") && !strings.Contains(told, "41.5") {
				t.Errorf("%s does not tell its number: %s", a.Alert, told)
			} else if !strings.HasSuffix(told, ".") {
				t.Errorf("%s: the %s is no sentence: %q", a.Alert, which, told)
			}
		}
	}
}

// Prometheus itself reads the alerts. Each fires in a case, at its moment, and on a good day none does.
func TestAlertsFireInTheirCases(t *testing.T) {
	t.Parallel()
	var tests struct {
		Tests []struct {
			Name   string
			Series []struct{ Series string } `yaml:"input_series"`
			Expr   []struct {
				Samples []struct{ Labels string } `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(text(t, "alerts_test.yaml")), &tests); err != nil {
		t.Fatal(err)
	}
	fires, healthy := map[string]bool{}, ""
	for _, f := range faults(t) {
		for name := range f.Fires {
			fires[name] = true
		}
	}
	for _, test := range tests.Tests {
		for _, e := range test.Expr {
			for _, s := range e.Samples {
				if m := regexp.MustCompile(`alertname="(\w+)"`).FindStringSubmatch(s.Labels); m != nil {
					fires[m[1]] = true
				}
			}
		}
		if test.Name == "healthy" {
			for _, s := range test.Series {
				healthy += s.Series + "\n"
			}
		}
	}
	for _, a := range alerts(t) {
		if !fires[a.Alert] {
			t.Errorf("no test has a case in which %s fires", a.Alert)
		}
		for _, name := range metricName.FindAllString(a.Expr, -1) {
			if !strings.Contains(healthy, name) {
				t.Errorf("alerts_test.yaml: the good day has no %s, so that %s cannot fire on it by mistake", name, a.Alert)
			}
		}
	}
	servers.Nightly(t, "mixin")
	promtool := servers.Program(t, "promtool")
	for _, args := range [][]string{
		{"check", "rules", "alerts.yaml", "testdata/alerts_quick.yaml"}, {"test", "rules", "alerts_test.yaml"}, {"check", "config", "prometheus.yml"},
	} {
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
