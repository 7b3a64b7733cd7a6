package aggregator

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/aggregate"
)

const strictRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - {name: sms, match: {api: sms}, limit: 3, per: 1h, window: sliding, strict: true, then: {block: 5m}}
`

// TestStrictLimits: permits are granted up to the limit, counted events settle them, and metrics say how
// it is.
func TestStrictLimits(t *testing.T) {
	p, client := strictProgram(t, strictRules, servers.StartRedis(t).Addr())
	testrun.Eventually(t, "both partitions may grant", func() bool { return gathered(t, p.Registry, "tallygate_strict_partitions_granting") == 2 })

	admitter, err := admit.New(admit.Config{Redis: client, Prefix: "strict", Poll: 100 * time.Millisecond, Logger: p.Log})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, admitter.Run)
	ask := func() *admit.Permit {
		got, err := admitter.Admit(t.Context(), admit.Request{API: "sms", Dims: []event.Dim{{Name: "uid", Value: "1"}}})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for i := range 3 {
		var got *admit.Permit
		testrun.Eventually(t, fmt.Sprint("permit ", i, " is granted"), func() bool { got = ask(); return got.Admitted && !got.InDoubt })
		if got.Event.ID == "" {
			t.Fatalf("no permit: %+v", got)
		}
		value := fmt.Sprintf(`{"api":"sms","uid":"1","permit":%q,"permit_at":%q}`, got.Event.ID, got.Event.At.Time().UTC().Format(time.RFC3339Nano))
		emitted(t, p.Kafka.Brokers[0], "strict.events", value)
		got.Done("success")
	}
	if got := ask(); got.Admitted || got.InDoubt {
		t.Errorf("a fourth one: %+v", got)
	}
	testrun.Eventually(t, "all is settled", func() bool {
		unsettled := gathered(t, p.Registry, "tallygate_strict_unsettled_seconds")
		return counted("http://"+p.HTTP.Addr().String()) == "3" && unsettled > 0 && unsettled < 30
	})
	if got := ask(); got.Admitted || got.InDoubt {
		t.Errorf("a fourth one, when three are counted: %+v", got)
	}
	for name, want := range map[string]float64{"tallygate_strict_lost_permits_total": 0, "tallygate_strict_errors_total": 0, "tallygate_strict_doubt_since_timestamp_seconds": 0} {
		if got := gathered(t, p.Registry, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if gathered(t, p.Registry, "tallygate_strict_applies_total") < 3 {
		t.Error("hardly anything was applied")
	}
}

// strictProgram runs an aggregator with rules, an embedded Kafka and the Redis at an address; "" is an
// embedded one.
func strictProgram(t *testing.T, ruleFile, addr string) (*Program, *redis.Client) {
	t.Helper()
	stack, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stack.Close)
	client := redis.NewClient(&redis.Options{Addr: cmp.Or(addr, stack.Redis), MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	t.Cleanup(func() { _ = client.Close() })
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(ruleFile), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Program{
		Config: aggregate.Config{Partitions: 2, Prefix: "strict"}, Kafka: &kafkaconn.Kafka{Brokers: stack.Kafka}, Redis: client,
		HTTP: listener, Registry: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if err := p.loadRules(path); err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, p.Run)
	return p, client
}

// gathered is the sum of a metric's values.
func gathered(t *testing.T, from prometheus.Gatherer, name string) (sum float64) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
