package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

type panel struct {
	ID                 int
	Type               string
	Title, Description string
	GridPos            struct{ X, Y, W, H int }
	Targets            []struct{ Expr, LegendFormat string }
}

func dashboard(t *testing.T) (panels []panel) {
	t.Helper()
	var file struct{ Panels []panel }
	if err := json.Unmarshal([]byte(text(t, "dashboard.json")), &file); err != nil {
		t.Fatal(err)
	}
	return file.Panels
}

// shown are the metrics in the dashboard's queries, and the panel of each.
func shown(t *testing.T) map[string]string {
	t.Helper()
	names := map[string]string{}
	for _, p := range dashboard(t) {
		for _, target := range p.Targets {
			for _, name := range metricName.FindAllString(target.Expr, -1) {
				names[strings.TrimSuffix(name, "_bucket")] = p.Title
			}
		}
	}
	return names
}

// The dashboard's panels lie side by side, and each says what it shows.
func TestDashboardHangsTogether(t *testing.T) {
	taken, ids := map[[2]int]string{}, map[int]string{}
	for _, p := range dashboard(t) {
		if p.Title == "" || p.Type != "row" && (p.Description == "" || len(p.Targets) == 0) {
			t.Errorf("panel %d is %q, %q, with %d queries", p.ID, p.Title, p.Description, len(p.Targets))
		}
		if other, twice := ids[p.ID]; twice {
			t.Errorf("%q and %q have one id", p.Title, other)
		}
		ids[p.ID] = p.Title
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, twice := taken[[2]int{x, y}]; twice || x >= 24 {
					t.Fatalf("%q lies on %q, or beyond the page", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// The dashboard goes by metrics that there are, and shows those that one looks for first, and all that a
// service's collector has.
func TestDashboardShowsTheMetricsThatThereAre(t *testing.T) {
	known, panels := documented(t), shown(t)
	for name, panel := range panels {
		if strings.HasPrefix(name, "tallygate_") && !known[name] {
			t.Errorf("%q: %s is not in the reference", panel, name)
		}
	}
	ofPrograms := []string{
		"tallygate_overshoot_events_total", "tallygate_overshoot_delay_seconds", "tallygate_event_to_verdict_seconds", "tallygate_event_to_enforced_seconds",
		"tallygate_partition_lag_seconds", "tallygate_blocklist_staleness_seconds", "tallygate_admits_total", "tallygate_strict_lost_permits_total",
		"go_goroutines", "process_resident_memory_bytes",
	}
	ofServices := collected(t)
	if len(ofServices) < 10 {
		t.Errorf("a service's collector has %d metrics", len(ofServices))
	}
	for _, name := range append(ofPrograms, ofServices...) {
		if panels[name] == "" && name != "tallygate_in_doubt_seconds_total" { // tallygate_in_doubt tells as much
			t.Errorf("no panel shows %s", name)
		}
	}
}

// collected are the metrics of tallygate.NewCollector. All of them are in the reference.
func collected(t *testing.T) []string {
	t.Helper()
	known, names := documented(t), map[string]bool{}
	described := make(chan *prometheus.Desc, 100)
	tallygate.NewCollector(&enforce.Table{}, &blocklist.Feed{}, &emit.Emitter{}).Describe(described)
	close(described)
	for d := range described {
		_, name, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ = strings.Cut(name, `"`)
		names[name] = true
		if !known[name] {
			t.Errorf("%s of a service's collector is not in the reference", name)
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Prometheus itself reads each query.
func TestDashboardsQueriesAreSound(t *testing.T) {
	servers.Nightly(t, "mixin")
	promtool := servers.Program(t, "promtool")
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	n := 0
	for _, p := range dashboard(t) {
		for _, target := range p.Targets {
			n++
			query, err := json.Marshal(strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&rules, "  - {record: 'dashboard:query%d', expr: %s}\n", n, query)
		}
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, &rules)
	}
}
