package e2e

import (
	"flag"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

var allAlerts = flag.Bool("alerts.all", false, "play each fault, and not only those that differ most")

var recordAlerts = flag.Bool("alerts.record", false, "record the series of each fault into deploy/testdata/faults, with the waits of deploy/alerts.yaml: it takes 20 minutes")

// A real Prometheus with the alerts of deploy/alerts.yaml, whose waits are short here, tells of each
// fault, and is silent again after the runbook's step. With -alerts.record the waits are the real ones,
// and what Prometheus has seen is kept: TestFaultsFireTheirAlerts in package deploy plays it again.
func TestAlertsFireAndRunbooksMend(t *testing.T) {
	if !*recordAlerts {
		servers.Nightly(t, "alerts")
	}
	for _, f := range alertFaults() {
		if !f.inSuite && !*recordAlerts && !*allAlerts {
			continue
		}
		t.Run(f.file, func(t *testing.T) {
			t.Parallel() // they mostly wait
			if *recordAlerts {
				record(t, f)
				return
			}
			s := newAlertStage(t, f, "../../../deploy/testdata/alerts_quick.yaml", time.Second)
			mend := f.strike(s)
			names := slices.Sorted(maps.Keys(f.within))
			for _, name := range names {
				t.Logf("%s: %s fires after another %v", f.name, name, s.prometheus.has(name).Round(100*time.Millisecond))
			}
			mend()
			t.Logf("%s: all is well %v after the runbook's step", f.name, s.prometheus.lacks(names...).Round(100*time.Millisecond))
		})
	}
}
