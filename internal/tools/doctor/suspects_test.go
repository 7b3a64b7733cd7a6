package doctor

import (
	"testing"

	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

// A producer in another language that writes user for uid gets no error from anybody: the doctor reads
// what it sent.
func TestEventsThatLookLikeAMistake(t *testing.T) {
	s := stack(t)
	cfg := Config{Kafka: brokers(s.Kafka...), Prefix: "suspects", NoWrite: true}
	ensure(t, cfg.Kafka.Brokers, topics.Config{Prefix: cfg.Prefix, Partitions: 2})
	wants(t, examine(t, cfg), "events", Skipped, "there is no event")
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(s.Kafka...), Transport: transport}
	send := func(partition int, values ...string) {
		t.Helper()
		var records []kafka.Record
		for _, v := range values {
			records = append(records, kafka.Record{Value: kafka.NewBytes([]byte(v))})
		}
		res, err := client.Produce(t.Context(), &kafka.ProduceRequest{Topic: cfg.Prefix + ".events", Partition: partition, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(records...)})
		if err != nil || res.Error != nil {
			t.Fatal(err, res)
		}
	}
	send(0, `{"api":"a","uid":"42"}`, `not JSON`)
	wants(t, examine(t, cfg), "events", Warn, "1 is malformed")
	send(1, `[{"api":"a","userId":"42"},{"api":"a","uid":"1","time":1795000000}]`, `{"api":"a","uid":"1","time":"2199-01-01T00:00:00Z"}`)
	r := examine(t, cfg)
	wants(t, r, "events", Warn, "of the latest 4 events, 1 looks like a mistake", "uid_name", "name it uid")
	wants(t, r, "events", Warn, "of the latest 4 events, 1 looks like a mistake", "time_1970", "milliseconds")
	wants(t, r, "events", Warn, "of the latest 4 events, 1 looks like a mistake", "time_ahead", "clock")
}
