package e2e

import (
	"encoding/json"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// Each query of the dashboard shows something of a small installation that works; but for those about
// what goes wrong, strict limits, and rules in shadow mode, of which it has none.
func TestTheDashboardShowsRealPrograms(t *testing.T) {
	t.Parallel() // it mostly waits
	servers.Nightly(t, "overview")
	s := newAlertStage(t, &alertFault{}, "../../../deploy/testdata/alerts_quick.yaml", time.Second)
	text, err := os.ReadFile("../../../deploy/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	chosen := strings.NewReplacer("$__rate_interval", "20s", "$job", ".*", "$instance", ".*", "$rule", ".*")
	silent := []string{
		"shadow", "misplaced", "mismatches", "decode_errors", "rule_skips", "lost_permits", "unpermitted", "strict_unsettled", "integration_suspects",
		"loop_lag", "quota_entries{job", "partition_failures", "admit_seconds", "would_deny", "near_limit", "rule_blocked", "event_suspects", "fuses_blown", "checkpoint_pause", "notify_",
	}
	queries := 0
	for _, p := range file.Panels {
		for _, target := range p.Targets {
			if quiet(target.Expr, silent) {
				continue
			}
			queries++
			eventually(t, p.Title+" shows "+target.Expr, func() bool {
				var data struct{ Result []any }
				return s.prometheus.ask("query?query="+url.QueryEscape(chosen.Replace(target.Expr)), &data) && len(data.Result) > 0
			})
		}
	}
	if queries < 50 {
		t.Errorf("%d queries were asked", queries)
	}
}

func quiet(query string, words []string) bool {
	for _, w := range words {
		if strings.Contains(query, w) {
			return true
		}
	}
	return false
}
