package dev_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

const failures = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: test}
spec:
  max_lateness: 1h
  rules:
    - {name: failures, match: {api: login, outcome: failure}, limit: 100, per: 1h, then: {block: 10m}}
`

// What came and did nothing is told of: a newcomer whose outcome has another name sees it, and not an empty screen.
func TestWhatDidNothingIsToldOf(t *testing.T) {
	t.Parallel()
	denied := strings.ReplaceAll(logins(4, "42"), `"login"}`, `"login", "outcome": "denied"}`)
	r := start(t, nil, "--rules", file(t, "rules.yaml", failures), "--input", file(t, "events.ndjson", denied), "--speed", "0")
	r.sees(`-- 4 events match no rule \(login denied: 4\); tallygate trace says why$`)

	brokers := r.sees(`^  Kafka +(\S+), topic tallygate.events$`)[1]
	transport := &kafka.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	w := &kafka.Writer{Transport: transport, Addr: kafka.TCP(brokers), Topic: "tallygate.events", Balancer: inTurn{}, RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond}
	t.Cleanup(func() { _ = w.Close() })
	var messages []kafka.Message
	for partition := range 4 { // three of them are not the uid's
		messages = append(messages, kafka.Message{Partition: partition, Value: []byte(`{"uid": "42", "api": "login", "outcome": "failure"}`)})
	}
	messages = append(messages, kafka.Message{Value: []byte(`{"uid": "42"}`)}, kafka.Message{Value: []byte(`{"uid": "42", "api": "login", "time": "2001-01-01T00:00:00Z"}`)})
	if err := w.WriteMessages(t.Context(), messages...); err != nil {
		t.Fatal(err)
	}
	r.sees(`-- 3 events come in another partition than that of their uid: the producer's partitioner is not murmur2$`)
	r.sees(`-- 1 malformed record \(no-api: 1\); tallygate dead-letters shows them$`)
	r.sees(`-- 1 event is older than the rules' max_lateness, and not counted$`)
	if n := strings.Count(r.screen.String(), "match no rule"); n != 1 {
		t.Errorf("what did not change is told %d times", n)
	}
	r.ends()
}

// Who sends no uid is told so, and does not look for a rule that is missing.
func TestEventsWithoutAUIDAreToldOf(t *testing.T) {
	t.Parallel()
	events := `{"api":"login","outcome":"failure"}` + "\n" + `{"api":"login","outcome":"failure"}` + "\n"
	r := start(t, nil, "--rules", file(t, "rules.yaml", failures), "--input", file(t, "events.ndjson", events), "--speed", "0")
	r.sees(`-- 2 events have no uid, and match no rule \(login failure without a uid: 2\); tallygate trace says why$`)
	r.ends()
}

// inTurn leaves a message in the partition that it names.
type inTurn struct{}

func (inTurn) Balance(m kafka.Message, _ ...int) int { return m.Partition }

// A rule file that is changed while dev runs: a newcomer sees whether the change counts.
func TestChangedRulesAreToldOf(t *testing.T) {
	t.Parallel()
	rules := file(t, "rules.yaml", failures)
	r := start(t, nil, "--rules", rules, "--input", "none")
	r.sees(`decision server +http`)
	change := func(text string) {
		t.Helper()
		if err := os.WriteFile(rules+"~", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(rules+"~", rules); err != nil {
			t.Fatal(err)
		}
	}
	r.sees(`-- 0 events`) // and the first rules are known
	change(strings.Replace(failures, "limit: 100", "limt: 100", 1))
	r.sees(`-- the rule file has a mistake, and the rules before it stay: tallygate check says which$`)
	change(strings.Replace(failures, "limit: 100", "limit: 50", 1))
	r.sees(`-- the changed rules count now: version \d+$`)
	if n := strings.Count(r.screen.String(), "has a mistake"); n != 1 {
		t.Errorf("a mistake is told of %d times", n)
	}
	r.stop()
	<-r.status
}
