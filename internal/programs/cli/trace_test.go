package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/programs/cli"
	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/pipeline/emit"
)

const tracedRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  exempt: vip.yaml
  rules:
    - {name: failures, match: {api: login, outcome: failure}, limit: 2, per: 1h, window: tumbling, then: {block: 5m}}
    - {name: amounts, match: {api: login}, count: {sum: attrs.amount}, limit: 100, per: 1d, window: tumbling, then: {block: until-reset}}
    - {name: shop, match: {api: order}, limit: 100, per: 1d, window: tumbling, then: {block: until-reset}}
`

// What is told of the group is what the group then does: the count that an event would have is the one that it
// has when it is emitted. Events that come are told of as they come.
func TestTraceOfTheGroup(t *testing.T) {
	servers, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(servers.Close)
	api := tracedGroup(t, servers.Kafka)
	none := testrun.NoEnv
	trace := func(event string) (text string, rules map[string]tracedRule) {
		t.Helper()
		var out, errs bytes.Buffer
		if status := cli.Main(testrun.Context(t), []string{"trace", "--live", "--aggregator", api, "--json", event}, nil, &out, &errs, none); status != 0 {
			t.Fatalf("status %d: %s", status, &errs)
		}
		var got struct{ Rules []tracedRule }
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		rules = map[string]tracedRule{}
		for _, r := range got.Rules {
			rules[r.Rule] = r
		}
		return out.String(), rules
	}
	var followed testrun.Output
	stop := testrun.Start(t, func(ctx context.Context) error {
		var errs bytes.Buffer
		if status := cli.Main(ctx, []string{"trace", "--live", "--follow", "--aggregator", api, "--kafka", servers.Kafka[0], "--prefix", "traced", "uid=42", "outcome=failure"}, nil, &followed, &errs, none); status != 0 {
			t.Errorf("status %d: %s", status, &errs)
		}
		return nil
	})
	e, err := emit.New(emit.Config{Brokers: servers.Kafka, Topic: "traced.events"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.WithoutCancel(t.Context())) })
	login := func(uid, outcome string) {
		if err := e.EmitWait(t.Context(), event.Event{UID: uid, API: "login", Outcome: outcome, Time: event.NoTime, Cost: event.One, Attrs: []event.Attr{{Name: "amount", Value: event.NumberValue(30 * event.One)}}}); err != nil {
			t.Fatal(err)
		}
	}
	const failed = `{"uid": "42", "api": "login", "outcome": "failure", "attrs": {"amount": 30}}`
	for n := 1; n <= 3; n++ {
		text, rules := trace(failed)
		f, a := rules["failures"].Limits, rules["amounts"].Limits
		if len(f) != 1 || len(a) != 1 || f[0].Before != n-1 || f[0].After != n || a[0].After != 30*n || f[0].Over != (n == 3) {
			t.Fatalf("before the %d-th: %s", n, text)
		}
		login("42", "failure")
		testrun.Eventually(t, "it is counted", func() bool { _, rules := trace(failed); return rules["failures"].Limits[0].Before == n })
	}
	if text, rules := trace(failed); rules["failures"].Limits[0].InForce == nil {
		t.Errorf("nothing is in force: %s", text)
	}
	if text, rules := trace(`{"uid": "boss", "api": "login", "outcome": "denied"}`); rules["failures"].Does != "passes" || rules["failures"].Unmet[0].Text != "outcome is denied, not failure" {
		t.Errorf("another outcome: %s", text)
	}
	if text, rules := trace(`{"uid": "boss", "api": "order"}`); rules["shop"].Limits[0].Exempt != "uid=boss (our own)" {
		t.Errorf("an exempt user: %s", text)
	}
	testrun.Eventually(t, "what comes is told of", func() bool {
		login("42", "success")
		login("42", "failure")
		return strings.Contains(followed.String(), "  failures  would count under uid=42: ") || strings.Contains(followed.String(), "in force")
	})
	stop()
	if text := followed.String(); strings.Contains(text, "success") || !strings.Contains(text, "traced.events/") {
		t.Errorf("followed: %s", text)
	}
}

type tracedRule struct {
	Rule, Does string
	Unmet      []struct{ Text string }
	Limits     []struct {
		Before, After int
		Over          bool
		Exempt        string
		InForce       any `json:"in_force"`
	}
}

// tracedGroup runs an aggregator by tracedRules, and returns its address.
func tracedGroup(t *testing.T, brokers []string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"rules.yaml": tracedRules, "vip.yaml": "- {uid: boss, reason: our own}\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, file, err := aggregator.LoadRules(filepath.Join(folder, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &aggregator.Program{
		Config: aggregate.Config{Rules: set, RuleFile: file, Partitions: 2, Prefix: "traced", Advertise: listener.Addr().String()},
		Kafka:  &kafkaconn.Kafka{Brokers: brokers}, HTTP: listener, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	}
	testrun.Start(t, p.Run)
	testrun.Eventually(t, "the aggregator is ready", func() bool {
		resp, err := http.Get("http://" + listener.Addr().String() + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return listener.Addr().String()
}
