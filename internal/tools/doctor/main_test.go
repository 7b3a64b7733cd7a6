package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// go-metrics, which sarama links, has one ticker for the life of the process.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

func stack(t *testing.T) *devstack.Stack {
	t.Helper()
	s, err := devstack.Start(context.Background(), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// ensure creates the topics of a prefix.
func ensure(t *testing.T, brokers []string, cfg topics.Config) {
	t.Helper()
	conf := sarama.NewConfig()
	conf.Version = sarama.V2_8_0_0
	if _, err := topics.Ensure(t.Context(), brokers, conf, cfg); err != nil {
		t.Fatal(err)
	}
}

func client(t *testing.T, addr string) redis.UniversalClient {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func examine(t *testing.T, cfg Config) *Report {
	t.Helper()
	r, err := Run(t.Context(), cfg, func(Result) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Results {
		t.Logf("%-7s %-14s %s -> %s", x.Status, x.Name, x.Detail, x.Fix)
	}
	return r
}

func brokers(addrs ...string) *kafkaconn.Kafka { return &kafkaconn.Kafka{Brokers: addrs} }

// wants fails the test unless a result of this name and status says all of texts, in its detail or
// its fix.
func wants(t *testing.T, r *Report, name string, s Status, texts ...string) {
	t.Helper()
	if !slices.ContainsFunc(r.Results, func(x Result) bool {
		return x.Name == name && x.Status == s && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(x.Detail+"\n"+x.Fix, text) })
	}) {
		t.Errorf("no result %s %s says %q", name, s, texts)
	}
}

// run is Command, with its output.
func run(t *testing.T, env map[string]string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	status = Command(testrun.Context(t), args, nil, &out, &err, testrun.Env(env))
	return status, out.String(), err.String()
}

var masks = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "HOST:PORT"},
	{regexp.MustCompile(`at most \d+ms apart`), "at most Nms apart"},
	{regexp.MustCompile(`heartbeat [0-9.]+m?s ago`), "heartbeat N ago"},
}

// golden compares text, its volatile parts masked, with a file.
func golden(t *testing.T, file, text string) {
	t.Helper()
	for _, m := range masks {
		text = m.what.ReplaceAllString(text, m.by)
	}
	testrun.Golden(t, filepath.Join("testdata", file), text)
}

// runJSON is Command with --json.
func runJSON(t *testing.T, env map[string]string, args ...string) (status int, r *Report, stderr string) {
	t.Helper()
	status, out, stderr := run(t, env, append(args, "--json")...)
	r = &Report{}
	if err := json.Unmarshal([]byte(out), r); err != nil {
		t.Fatal(err, out)
	}
	for _, x := range r.Results {
		t.Logf("%-7s %-14s %s -> %s", x.Status, x.Name, x.Detail, x.Fix)
	}
	return status, r, stderr
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const goodRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - name: search
      match: {api: search.query}
      limit: 3
      per: 1m
      then: {block: 2d}
`
