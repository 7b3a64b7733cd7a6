package events

import (
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/enforcer"
	"github.com/tallygate/tallygate/internal/run/kafkaconn/options"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Kafka's options are looked at where events go there, and only then.
func TestKafkasOptionsAreChecked(t *testing.T) {
	for want, args := range map[string][]string{
		`--kafka-sasl needs --kafka-user`:              {"--emit-admitted", "--kafka-sasl", "plain"},
		`--kafka-user and --kafka-password-file need `: {"--emit-denied", "--kafka-user", "x"},
		`--max-connections 0`:                          {"--kafka-user", "x", "--max-connections", "0"},
	} {
		var said strings.Builder
		status := Command(testrun.Context(t), args, io.Discard, &said, testrun.NoEnv)
		if status != ops.ExitUsage || !strings.Contains(said.String(), want) || strings.Contains(said.String(), "--kafka-user") != strings.Contains(want, "kafka") {
			t.Errorf("%v: %d, %s, want %q", args, status, said.String(), want)
		}
	}
}

// What is emitted is in Kafka when the program has ended.
func TestEventsAreSentBeforeTheEnd(t *testing.T) {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "shop.events"))
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	o := ops.NewOptions("test", "", io.Discard, testrun.NoEnv)
	kafka := options.New(o)
	if err := o.Parse([]string{"--kafka", broker.ListenAddrs()[0]}); err != nil {
		t.Fatal(err)
	}
	events, err := connect(kafka)
	if err != nil {
		t.Fatal(err)
	}
	e := &enforcer.Program{Prefix: "shop", Registry: ops.NewRegistry("enforcer"), Log: slog.New(slog.DiscardHandler)}
	emitter, end, err := events(e)
	if err != nil {
		t.Fatal(err)
	}
	if !emitter.Emit(event.Event{UID: "42", API: "search", Time: 1, Cost: event.One}) {
		t.Fatal("it is not taken")
	}
	end()
	metrics := httptest.NewRecorder()
	ops.MetricsHandler(e.Registry, nil, nil).ServeHTTP(metrics, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{`result="sent"} 1`, `result="dropped"} 0`} {
		if !strings.Contains(metrics.Body.String(), want) {
			t.Errorf("no %s in\n%s", want, metrics.Body)
		}
	}
}
