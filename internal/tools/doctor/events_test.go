package doctor

import (
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

// inTurn leaves a message in the partition that it names.
type inTurn struct{}

func (inTurn) Balance(m kafka.Message, _ ...int) int { return m.Partition }

// What is wrong with the events that come is told, with the names that producers give, and where to look.
func TestLatestEvents(t *testing.T) {
	s := stack(t)
	cfg := Config{Kafka: brokers(s.Kafka...), NoWrite: true}
	wants(t, examine(t, cfg), "events", Skipped, "there is no tallygate.events yet")
	ensure(t, s.Kafka, topics.Config{Prefix: "tallygate", Partitions: 2})
	wants(t, examine(t, cfg), "events", Skipped, "there is no event in tallygate.events")

	transport := &kafka.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	w := &kafka.Writer{Transport: transport, Addr: kafka.TCP(s.Kafka...), Topic: "tallygate.events", Balancer: inTurn{}, RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond}
	t.Cleanup(func() { _ = w.Close() })
	write := func(messages ...kafka.Message) {
		t.Helper()
		if err := w.WriteMessages(t.Context(), messages...); err != nil {
			t.Fatal(err)
		}
	}
	const home = 0 // of uid 42, of two partitions
	denied := []byte(`{"uid": "42", "api": "search.query", "outcome": "denied"}`)
	write(kafka.Message{Partition: home, Value: []byte(`[{"uid":"1","api":"a"},{"uid":"2","api":"a"},{"uid":"3","api":"a"}]`)}, kafka.Message{Partition: home, Value: []byte(`{"api":"a"}`)})
	wants(t, examine(t, cfg), "events", OK, "of the latest 4 events, all are where they belong")
	cfg.Rules = writeFile(t, goodRules)
	wants(t, examine(t, cfg), "events", Warn, "of the latest 4 events, none matches a rule of "+cfg.Rules+` ("a": 4)`, "tallygate trace --rules "+cfg.Rules+" kafka:tallygate.events")
	write(kafka.Message{Partition: home, Value: denied})
	wants(t, examine(t, cfg), "events", OK, `of the latest 5 events, 4 without a rule of `+cfg.Rules+` that counts it ("a": 4)`)

	write(
		kafka.Message{Partition: 1 - home, Value: denied, Headers: []kafka.Header{{Key: "tg-c", Value: []byte("shop-php")}}},
		kafka.Message{Partition: 1 - home, Value: denied}, kafka.Message{Value: []byte(`{"uid": "42"}`)},
		kafka.Message{Partition: home, Value: []byte(`{"uid": "42", "api": "search.query", "time": "2001-01-01T00:00:00Z"}`)})
	r := examine(t, cfg)
	wants(t, r, "events", Warn, `of the latest 8 events, 2 are in another partition than that of the uid ("shop-php": 1, "unnamed": 1)`, "murmur2", "tallygate.events/1@1 is such a record")
	wants(t, r, "events", Warn, `1 is malformed ("no-api": 1)`, "tallygate dead-letters")
	wants(t, r, "events", Warn, "1 is older than max_lateness")
}
