package deploy

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// fault is what a real Prometheus saw while one thing was broken. internal/testing/e2e records it.
type fault struct {
	file string

	Fault, Step         string
	Struck, Mended, End time.Duration
	Fires               map[string]time.Duration // when each of its alerts fires at the latest, after the fault
	Measured            map[string]struct{ Fired, Over time.Duration }
	Series              []struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	}
}

func faults(t *testing.T) (all []fault) {
	t.Helper()
	files, err := filepath.Glob("testdata/faults/*.yaml")
	if err != nil || len(files) < 14 {
		t.Fatalf("%d recorded faults, %v", len(files), err)
	}
	for _, file := range files {
		f := fault{file: file}
		read(t, file, &f)
		if f.Fault == "" || f.Step == "" || f.Mended <= f.Struck || f.End <= f.Mended || len(f.Fires) == 0 || len(f.Series) < 20 {
			t.Errorf("%s is no recording: %q, %v, %v, %v, %d series", file, f.Fault, f.Struck, f.Mended, f.Fires, len(f.Series))
		}
		all = append(all, f)
	}
	return all
}

// Series that the real programs gave in each fault fire the alerts that should fire, in time, and no
// other. Before the fault none fires; those that were seen to end after the runbook's step end here, too.
func TestFaultsFireTheirAlerts(t *testing.T) {
	servers.Nightly(t, "mixin")
	promtool := servers.Program(t, "promtool")
	rules, err := filepath.Abs("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults(t) {
		t.Run(strings.TrimSuffix(filepath.Base(f.file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			test, err := yaml.Dump(f.test(rules))
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "test.yaml")
			if err := os.WriteFile(file, test, 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", f.Fault, err, out)
			}
		})
	}
}

// test is the fault as promtool reads it.
func (f *fault) test(rules string) map[string]any {
	type sample struct {
		Labels string `yaml:"labels"`
		Value  int    `yaml:"value"`
	}
	names := func(names ...string) (samples []sample) {
		for _, name := range names {
			samples = append(samples, sample{fmt.Sprintf(`{alertname=%q}`, name), 1})
		}
		return samples
	}
	var asked []map[string]any
	ask := func(at time.Duration, query string, want []sample) {
		asked = append(asked, map[string]any{"eval_time": at.String(), "expr": query, "exp_samples": want})
	}
	const firing = `ALERTS{alertstate="firing"%s}`
	all := slices.Sorted(maps.Keys(f.Fires))
	ask(f.Struck-5*time.Second, `group by (alertname) (`+fmt.Sprintf(firing, "")+`)`, nil)
	for _, name := range all {
		ask(f.Struck+f.Fires[name], `group by (alertname) (`+fmt.Sprintf(firing, `,alertname="`+name+`"`)+`)`, names(name))
		if over := f.Measured[name].Over; over > 0 {
			ask(f.End-10*time.Second, `group by (alertname) (`+fmt.Sprintf(firing, `,alertname="`+name+`"`)+`)`, nil)
		}
	}
	ask(f.End, `group by (alertname) (max_over_time(`+fmt.Sprintf(firing, "")+`[1h]))`, names(all...))
	return map[string]any{
		"rule_files": []string{rules}, "evaluation_interval": "5s",
		"tests": []map[string]any{{"name": f.Fault, "interval": "5s", "input_series": f.Series, "promql_expr_test": asked}},
	}
}

// named is after how long the console's overview named a fault: go test -v -run TheOverviewNames ./internal/testing/e2e
// measures it, each second being a round of the console.
var named = map[string]string{
	"the broker is gone":                        "0.1 s",
	"the right to read events is revoked":       "3.0 s",
	"all aggregators are gone":                  "under 0.1 s",
	"the rule file has a mistake":               "1.0 s",
	"Redis is gone, and comes back empty":       "2.5 s",
	"an enforcer is killed":                     "3.0 s",
	"an enforcer's clock is five seconds ahead": "1.0 s",
}

// The page has what was measured when the faults were recorded.
func TestRunbooksTellWhatWasMeasured(t *testing.T) {
	const page, begins, ends = "../docs/runbooks.md", "<!-- faults: go test ./deploy -run Runbooks -rewrite -->\n", "<!-- /faults -->\n"
	var b strings.Builder
	b.WriteString("\n| what broke | console names it after | alert | fired after | the runbook's step | over after |\n|---|---|---|---|---|---|\n")
	seen := 0
	for _, f := range faults(t) {
		console := cmp.Or(named[f.Fault], "–")
		if named[f.Fault] != "" {
			seen++
		}
		for _, name := range slices.Sorted(maps.Keys(f.Fires)) {
			over := "later than was measured"
			if m := f.Measured[name]; m.Over > 0 {
				over = m.Over.String()
			}
			fmt.Fprintf(&b, "| %s | %s | [%s](#%s) | %v | %s | %s |\n", f.Fault, console, name, strings.ToLower(name), f.Measured[name].Fired, f.Step, over)
		}
	}
	if seen != len(named) {
		t.Errorf("%d of %d faults that the console named were recorded", seen, len(named))
	}
	b.WriteString("\n")
	testrun.Section(t, page, begins, ends, b.String())
}
