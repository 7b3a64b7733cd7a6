package health

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("../../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each finding has words, a thing to do and a section of the runbooks, and somebody tells it: a link, the banner, the
// doctor or an alert.
func TestEachFindingIsToldAndMended(t *testing.T) {
	runbooks, names := strings.ToLower(read(t, "docs/runbooks.md")), map[string]bool{}
	for i := range Findings {
		f := &Findings[i]
		if names[f.Name] || f.Name == "" {
			t.Errorf("there are two findings %q", f.Name)
		}
		names[f.Name] = true
		if !strings.HasSuffix(f.Says, ".") || f.Do == "" || strings.HasSuffix(f.Do, ".") {
			t.Errorf("%s says %q, and what to do is %q", f.Name, f.Says, f.Do)
		}
		if section := "\n### " + strings.ReplaceAll(strings.ToLower(f.Runbook), "-", " ") + "\n"; f.Runbook == "" || !strings.Contains(runbooks, section) {
			t.Errorf("%s has the runbook %q, which is no section of docs/runbooks.md", f.Name, f.Runbook)
		}
		judged := f.judge != nil || f.beat != nil
		if told := f.Link != "" || f.Banner || f.Check != ""; judged != told || !judged && f.Severity == "" {
			t.Errorf("%s is judged: %v; it is told by a link, the banner or the doctor: %v; its alert is %q", f.Name, judged, told, f.Severity)
		}
		if (f.beat != nil) != (f.one != "" && f.many != "") {
			t.Errorf("%s has words for one enforcer and for several: %q, %q", f.Name, f.one, f.many)
		}
	}
}

// The mixin has its alerts' severity, summary and bound from the table.
func TestTheMixinReadsTheTable(t *testing.T) {
	type alert struct {
		Severity string  `json:"severity"`
		Says     string  `json:"says"`
		Seconds  float64 `json:"seconds,omitempty"`
	}
	all := map[string]alert{}
	for i := range Findings {
		if f := &Findings[i]; f.Severity != "" {
			all[strings.TrimPrefix(f.Runbook, "Tallygate")] = alert{f.Severity, f.Says, f.Over.Seconds()}
		}
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	testrun.Golden(t, "../../../deploy/mixin/findings.json", string(text)+"\n")
}

// Those that alert are the alerts that there are, by name, with the same words and severity.
func TestEachAlertIsAFinding(t *testing.T) {
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert               string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	alerts := 0
	for _, g := range file.Groups {
		for _, a := range g.Rules {
			alerts++
			i := slices.IndexFunc(Findings, func(f Finding) bool { return f.Severity != "" && f.Runbook == a.Alert })
			if i < 0 {
				t.Errorf("%s is no finding", a.Alert)
			} else if f := &Findings[i]; f.Severity != a.Labels["severity"] || f.Says != a.Annotations["summary"] {
				t.Errorf("%s is %s: %q; the finding is %s: %q", a.Alert, a.Labels["severity"], a.Annotations["summary"], f.Severity, f.Says)
			}
		}
	}
	for i := range Findings {
		if Findings[i].Severity != "" {
			alerts--
		}
	}
	if alerts != 0 {
		t.Errorf("there are %d more alerts than findings that alert", alerts)
	}
}

// An enforcer that has begun again is not missed; another one of its name, which was there before, does not hide that
// it has gone.
func TestAnEnforcerThatBeganAgain(t *testing.T) {
	for about, started := range map[string]time.Time{"begun again": noon, "another instance": noon.Add(-time.Hour)} {
		o := well()
		o.Enforcers.Value = []presence.Beat{{ID: "1", Name: "pay", Seen: noon.Add(-time.Minute), At: noon.Add(-time.Minute), Age: time.Minute, Enabled: true},
			{ID: "2", Name: "pay", Started: started, Seen: noon, At: noon, Enabled: true}}
		missed := len(Named(enforcerGone).Faults(o)) > 0
		if level := Enforcer(o, &o.Enforcers.Value[0]).Level; missed != (about != "begun again") || missed != (level == Bad) {
			t.Errorf("%s: it is missed: %v, its link is %s", about, missed, level)
		}
	}
}

func TestBounds(t *testing.T) {
	for d, want := range map[time.Duration]Level{0: OK, Late.Warn - 1: OK, Late.Warn: Warn, Late.Bad - 1: Warn, Late.Bad: Bad} {
		if is := Late.Level(d); is != want {
			t.Errorf("%v is %s, want %s", d, is, want)
		}
	}
}

// Of several primaries each has to be well, and the one that is not is named.
func TestEachPrimaryIsJudged(t *testing.T) {
	for used, want := range map[int64]Level{10: OK, 85: Warn, 100: Bad} {
		o := well()
		o.Redis.Value.Servers = []Server{{Name: "Redis a", MaxMemory: 1000}, {Name: "Redis b", Memory: used, MaxMemory: 100}}
		is := OK
		for _, f := range Named("redis-full").Faults(o) {
			if is = f.Level; !strings.HasPrefix(f.Text, "Redis b") {
				t.Errorf("it says %q", f.Text)
			}
		}
		if is != want {
			t.Errorf("%d%% used: %s, want %s", used, is, want)
		}
	}
}

// The clocks of machines, with what the measurement may be wrong by.
func TestClocks(t *testing.T) {
	for _, c := range []struct {
		clocks []Offset
		want   Level
	}{
		{[]Offset{{Name: "this machine"}, {"Redis", 900 * time.Millisecond, 0}}, OK},
		{[]Offset{{Name: "this machine"}, {"Redis", 2 * time.Second, time.Millisecond}}, Warn},
		{[]Offset{{Name: "this machine"}, {"Redis", 2 * time.Second, 3 * time.Second}}, OK}, // a slow way there
		{[]Offset{{Name: "this machine"}, {"Redis", -40 * time.Second, 0}, {"broker 1", 30 * time.Second, 0}}, Bad},
	} {
		is := OK
		for _, f := range Named("clocks").Faults(&Observations{Doctor: &Once{Clocks: c.clocks}}) {
			is = f.Level
		}
		if is != c.want {
			t.Errorf("%v: %s, want %s", c.clocks, is, c.want)
		}
	}
}
