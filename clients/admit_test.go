package clients

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

const strictRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: clients}
spec:
  rules:
    - {name: messages, match: {api: sms.send, outcome: success}, limit: 10, per: 1d, window: sliding, strict: true}
`

func TestPythonDoesNotOneTooMany(t *testing.T) {
	admits(t, python(t), "python/examples/permits.py")
}

// admits runs a client that tries thirty actions, of which one that is admitted does not happen. As many
// happen as the limit allows, all have events, and in the end all are counted, and nothing is held or lost.
func admits(t *testing.T, command ...string) {
	t.Helper()
	in := install(t, strictRules)
	args := slices.Concat(command, []string{in.decision, in.brokers, in.prefix + ".events", "30", "42"})
	done := 0
	testrun.Eventually(t, "all ten are done; what is cancelled is free a moment later", func() bool {
		cmd, said := exec.CommandContext(t.Context(), args[0], args[1:]...), new(testrun.Output)
		cmd.Stderr = said // Kafka may be slow at first, which a client says
		out, err := cmd.Output()
		more := 0
		if _, failed := fmt.Sscanf(string(out), "done %d\n", &more); err != nil || failed != nil || done == 0 && more < 9 || done+more > 10 {
			t.Fatalf("%v: %v, %v; %d were done before\n%s%s%s", args, err, failed, done, said, out, get(t, in.aggregator+"/v1/explain?uid=42&api=sms.send"))
		}
		done += more
		return done == 10
	})
	ids, permits := map[string]bool{}, map[string]bool{}
	for p := range installed {
		for _, m := range read(t, servers.Kafka(t), in.prefix+".events", p) {
			e := decode(t, m.Value)
			ids[e.ID], permits[e.Permit.ID] = true, true
			if e.UID != "42" || e.Permit.At <= 0 {
				t.Errorf("an event is %+v", e)
			}
		}
	}
	if len(ids) != 10 || len(permits) != 10 || permits[""] {
		t.Errorf("%d events with %d permits, want 10 of each", len(ids), len(permits))
	}
	testrun.Eventually(t, "all that was done is counted, and no permit is held", func() bool {
		var key struct {
			Rules []struct {
				Strict struct{ Level, Held, Permits float64 }
			}
		}
		text := get(t, in.aggregator+"/v1/explain?uid=42&api=sms.send")
		if err := json.Unmarshal([]byte(text), &key); err != nil || len(key.Rules) != 1 {
			return false // not everything is there yet
		}
		s := key.Rules[0].Strict
		if s.Level > 10 {
			t.Fatalf("counted more than was done: %s", text)
		}
		return s.Level == 10 && s.Held == 0 && s.Permits == 0
	})
	if text := get(t, in.metrics+"/metrics"); !strings.Contains(text, "tallygate_strict_lost_permits_total{rule=\"messages\"} 0\n") {
		t.Errorf("permits are lost:\n%s", text)
	}
}
