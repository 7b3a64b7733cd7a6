package clients

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/aggregator"
	"github.com/tallygate/tallygate/internal/enforcer"
	"github.com/tallygate/tallygate/internal/servers"
	"github.com/tallygate/tallygate/internal/testrun"
)

const strictRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: clients}
spec:
  rules:
    - {name: messages, match: {api: sms.send, outcome: success}, limit: 10, per: 1d, window: sliding, strict: true}
`

func TestPythonDoesNotOneTooMany(t *testing.T) {
	brokers, redis := servers.Kafka(t), servers.Redis(t)
	admits(t, brokers, redis, python(t), "python/examples/permits.py")
}

// admits runs a client that tries thirty actions, of which one that is admitted does not happen. As many
// happen as the limit allows, all have events, and in the end all are counted, and nothing is held or lost.
func admits(t *testing.T, brokers []string, redis string, command ...string) {
	t.Helper()
	in := install(t, brokers, redis)
	args := slices.Concat(command, []string{in.decision, strings.Join(brokers, ","), in.prefix + ".events", "30", "42"})
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil || string(out) != "done 10\n" {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	ids, permits := map[string]bool{}, map[string]bool{}
	for p := range installed {
		for _, m := range read(t, brokers, in.prefix+".events", p) {
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

const installed = 4 // partitions

// installation is an aggregator and a decision server, by their URLs.
type installation struct{ prefix, aggregator, metrics, decision string }

func install(t *testing.T, brokers []string, redis string) installation {
	t.Helper()
	prefix := servers.Name(t)
	servers.DropTopics(t, brokers, prefix)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(strictRules), 0o600); err != nil {
		t.Fatal(err)
	}
	api, metrics, decision := servers.FreeAddr(t), servers.FreeAddr(t), servers.FreeAddr(t)
	common := []string{"--redis", redis, "--prefix", prefix, "--log-level", "warn"}
	run(t, aggregator.Command, append([]string{"--kafka", strings.Join(brokers, ","), "--rules", rules, "--partitions", "4",
		"--listen", api, "--metrics-listen", metrics}, common...))
	run(t, enforcer.Command, append([]string{"--listen", decision, "--grpc-listen", "none", "--metrics-listen", servers.FreeAddr(t)}, common...))
	in := installation{prefix, "http://" + api, "http://" + metrics, "http://" + decision}
	testrun.Eventually(t, "both are ready", func() bool { // the topics are there then
		return get(t, in.aggregator+"/readyz") != "" && get(t, in.decision+"/readyz") != ""
	})
	return in
}

// run runs a program until the test ends.
func run(t *testing.T, program func(context.Context, []string, io.Writer, io.Writer, func(string) string) int, args []string) {
	testrun.Start(t, func(ctx context.Context) error {
		if status := program(ctx, args, io.Discard, t.Output(), func(string) string { return "" }); status != 0 {
			t.Errorf("%v ends with %d", args, status)
		}
		return nil
	})
}

// get returns what a server answers; "" where it is not ready.
func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return ""
	}
	return string(text)
}
