package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/servers"
)

type panel struct {
	ID                 int
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

// The dashboard goes by metrics that there are, its panels lie side by side, and each says what it
// shows.
func TestDashboardHangsTogether(t *testing.T) {
	reference := text(t, "../docs/reference/metrics.md")
	metric, known := regexp.MustCompile(`tallygate_[a-z_]+`), map[string]bool{}
	for _, name := range regexp.MustCompile("`(tallygate_[a-z_]+)").FindAllStringSubmatch(reference, -1) {
		known[name[1]] = true
	}
	taken, ids, shown := map[[2]int]string{}, map[int]string{}, map[string]bool{}
	for _, p := range dashboard(t) {
		if p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
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
		for _, target := range p.Targets {
			for _, name := range metric.FindAllString(target.Expr, -1) {
				name = strings.TrimSuffix(name, "_bucket")
				shown[name] = true
				if !known[name] {
					t.Errorf("%q: %s is not in the reference", p.Title, name)
				}
			}
		}
	}
	for _, name := range []string{
		"tallygate_overshoot_events_total", "tallygate_overshoot_delay_seconds", "tallygate_event_to_verdict_seconds", "tallygate_event_to_enforced_seconds",
		"tallygate_partition_lag_seconds", "tallygate_blocklist_staleness_seconds", "tallygate_admits_total", "tallygate_strict_lost_permits_total",
	} {
		if !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// Prometheus itself reads each query.
func TestDashboardsQueriesAreSound(t *testing.T) {
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
