package aggregator

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/aggregate"
)

const someRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - {name: a, match: {api: a}, limit: 1, per: 1m, then: {block: 1m}}
`

func rulesFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustParse(t *testing.T, getenv func(string) string, args ...string) *Program {
	t.Helper()
	a, err := parse(args, io.Discard, io.Discard, getenv)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = a.HTTP.Close(), a.Metrics.Close()
		if a.Redis != nil {
			_ = a.Redis.Close()
		}
	})
	return a
}

// The public options are there by name, as flags and in the environment.
func TestPublicOptions(t *testing.T) {
	public := map[string]string{
		"kafka": "k:1,l:2", "redis": "r:1", "rules": rulesFile(t, someRules), "listen": "127.0.0.1:0", "advertise": "me:80",
		"metrics-listen": "127.0.0.1:0", "prefix": "shop", "instance-id": "agg-1",
	}
	var flags []string
	env := map[string]string{}
	for name, value := range public {
		flags = append(flags, "--"+name, value)
		env["TALLYGATE_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))] = value
	}
	nothing := testrun.NoEnv
	for about, a := range map[string]*Program{
		"flags":       mustParse(t, nothing, flags...),
		"environment": mustParse(t, testrun.Env(env)),
	} {
		c := a.Config
		if !slices.Equal(a.Kafka.Brokers, []string{"k:1", "l:2"}) || a.Redis == nil || c.Rules.Name != "shop" ||
			c.Advertise != "me:80" || c.Prefix != "shop" || c.InstanceID != "agg-1" {
			t.Errorf("%s: %+v", about, a)
		}
	}
	file := rulesFile(t, "kafka: [c:3]\nrules: "+public["rules"]+"\nlisten: 127.0.0.1:0\nmetrics_listen: 127.0.0.1:0\ncheckpoint-every: 250ms\n")
	a := mustParse(t, nothing, "--config", file, "--checkpoint-every", "100ms")
	if !slices.Equal(a.Kafka.Brokers, []string{"c:3"}) || a.Config.CheckpointEvery != 100*time.Millisecond || a.Redis != nil {
		t.Errorf("a file and a flag: %+v", a)
	}
}

// Where others reach an instance: at what it was told to listen on, but all interfaces are no
// address.
func TestAdvertised(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	addr := &net.TCPAddr{Port: 4711}
	for listen, want := range map[string]string{
		"127.0.0.1:0":     "127.0.0.1:4711",
		"agg-1:8081":      "agg-1:4711",
		":8081":           host + ":4711",
		"0.0.0.0:8081":    host + ":4711",
		"[::]:8081":       host + ":4711",
		"[2001:db8::1]:0": "[2001:db8::1]:4711",
	} {
		if got, err := advertised(listen, addr); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", listen, got, err, want)
		}
	}
	a := mustParse(t, testrun.NoEnv, "--rules", rulesFile(t, someRules), "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")
	if a.Config.Advertise != a.HTTP.Addr().String() {
		t.Errorf("advertised is %s, and listening %s", a.Config.Advertise, a.HTTP.Addr())
	}
}

// A publisher alone needs no rules, and no name for other instances to reach it by.
func TestPublishOnly(t *testing.T) {
	a := mustParse(t, testrun.NoEnv, "--publish-only", "--redis", "r:1", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")
	if !a.PublishOnly || a.Config.Rules == nil || len(a.Config.Rules.Limits) != 0 {
		t.Errorf("%+v", a)
	}
}

// Dashboards find the public metrics by their names.
func TestPublicMetrics(t *testing.T) {
	set, err := CompileRules("rules.yaml", []byte(someRules))
	if err != nil {
		t.Fatal(err)
	}
	reg := ops.NewRegistry("aggregator")
	if _, err := aggregate.New(aggregate.Config{Brokers: []string{"k:1"}, Rules: set, Registry: reg}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"tallygate_events_total", "tallygate_event_decode_errors_total", "tallygate_rule_matches_total",
		"tallygate_verdicts_total", "tallygate_checkpoint_duration_seconds", "tallygate_partition_lag",
		"tallygate_state_keys", "tallygate_event_to_verdict_seconds", "tallygate_build_info",
	} {
		// A second metric of a name, with other help or labels, is refused.
		if reg.Register(prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "another"})) == nil {
			t.Errorf("there is no %s", name)
		}
	}
}

func TestCommandTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	bad := rulesFile(t, strings.Replace(someRules, "limit", "limt", 1))
	if status := Command(testrun.Context(t), []string{"--rules", bad, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"}, io.Discard, &out, testrun.NoEnv); status != ops.ExitUsage {
		t.Errorf("status %d", status)
	}
	if !strings.Contains(out.String(), `unknown field "limt"; did you mean "limit"?`) {
		t.Errorf("%s", &out)
	}
}

// A share of verdicts to trace does nothing without a collector: a warning says so, since whoever switches the
// collector off for a while need not take the share out.
func TestTraceSampleWithoutACollector(t *testing.T) {
	for _, c := range []struct {
		args []string
		warn bool
	}{
		{[]string{"--trace-sample", "0.1"}, true},
		{[]string{"--trace-sample", "0.1", "--trace-otlp", "none"}, true},
		{[]string{"--trace-sample", "0.1", "--trace-otlp", "127.0.0.1:1"}, false},
		{nil, false},
	} {
		var log strings.Builder
		args := append([]string{"--rules", rulesFile(t, someRules), "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"}, c.args...)
		a, err := parse(args, io.Discard, &log, testrun.NoEnv)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = a.HTTP.Close(), a.Metrics.Close()
		if warned := strings.Contains(log.String(), "no verdict begins a trace"); warned != c.warn {
			t.Errorf("%v: warned %t; the log:\n%s", c.args, warned, log.String())
		}
	}
}
