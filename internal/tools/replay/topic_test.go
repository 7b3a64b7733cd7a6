package replay

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/testing/servers"
)

// A topic is read from all partitions, merged by broker time, up to where it ended: arrays,
// CloudEvents and repeats of an emitter as an aggregator takes them.
func TestTopic(t *testing.T) {
	servers.EachKafka(t, testTopic)
}

func testTopic(t *testing.T, brokers []string) {
	name := servers.Name(t) + ".events"
	servers.DropTopics(t, brokers, name)
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	createTopic(t, &kafka.Client{Addr: kafka.TCP(brokers...), Timeout: 30 * time.Second, Transport: transport}, name, 3)

	w := &kafka.Writer{
		Transport: transport,
		Addr:      kafka.TCP(brokers...), Topic: name, Balancer: byHand{}, RequiredAcks: kafka.RequireAll,
		BatchSize: 1, BatchTimeout: time.Millisecond,
	}
	defer w.Close()
	sequence := func(n uint64) []kafka.Header {
		return []kafka.Header{{Key: event.HeaderInstance, Value: []byte("i")}, {Key: event.HeaderSequence, Value: event.AppendSequence(nil, n)}}
	}
	for _, m := range []kafka.Message{
		{Partition: 2, Value: []byte(`{"id":"a","uid":"u1","api":"one"}`), Headers: sequence(1)},
		{Partition: 0, Value: []byte(`[{"id":"b","uid":"u2","api":"one"},{"id":"c"},{"id":"d","uid":"u2","api":"two"}]`)},
		{Partition: 2, Value: []byte(`{"id":"a","uid":"u1","api":"one"}`), Headers: sequence(1)},
		{Partition: 2, Value: []byte(`{"id":"e","uid":"u1","api":"one"}`), Headers: sequence(2)},
		{Partition: 0, Value: []byte(`no event`)},
		{Partition: 0, Value: []byte(`{}`), Headers: []kafka.Header{
			{Key: "ce_id", Value: []byte("f")}, {Key: "ce_source", Value: []byte("s")}, {Key: "ce_type", Value: []byte("three")},
			{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_subject", Value: []byte("u3")},
		}},
	} {
		if err := w.WriteMessages(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	src, err := Topic(t.Context(), &kafkaconn.Kafka{Brokers: brokers}, name)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if n, bytes := src.Total(); n != 6 || bytes {
		t.Errorf("there are %d records (bytes: %v), want 6 records", n, bytes)
	}
	late := kafka.Message{Partition: 1, Value: []byte(`{"id":"after","uid":"u1","api":"one"}`)}
	if err := w.WriteMessages(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	// By partition: records of one millisecond have no order over several.
	got, broker := map[string][]string{}, event.NoTime
	for {
		rec, err := src.Next(t.Context())
		if bad, ok := errors.AsType[*BadRecord](err); ok {
			where := strings.TrimPrefix(bad.Where, name+"/")
			got[where[:1]] = append(got[where[:1]], "bad @"+where[2:])
			continue
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if rec.Broker == event.NoTime || broker != event.NoTime && rec.Broker < broker {
			t.Errorf("event %s has the broker time %v behind %v", rec.ID, rec.Broker, broker)
		}
		broker = rec.Broker
		p := fmt.Sprint(rec.Cause.Partition)
		if want := fmt.Sprintf("%s/%s@%d", name, p, rec.Cause.Offset); src.Where() != want {
			t.Errorf("event %s is at %s, want %s", rec.ID, src.Where(), want)
		}
		got[p] = append(got[p], fmt.Sprintf("%s %s %s @%d", rec.ID, rec.UID, rec.API, rec.Cause.Offset))
	}
	want := map[string][]string{
		"0": {"bad @0", "b u2 one @0", "d u2 two @0", "bad @1", "s/f u3 three @2"},
		"2": {"a u1 one @0", "e u1 one @2"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what was read (- expected, + got)\n%s", diff)
	}
	if src.Done() != 6 {
		t.Errorf("%d records are done, want 6", src.Done())
	}
	if _, err := Topic(t.Context(), &kafkaconn.Kafka{Brokers: brokers}, name+".nosuch"); err == nil || !strings.Contains(err.Error(), ".nosuch") {
		t.Errorf("a topic that is not there: %v", err)
	}
}

// byHand leaves a message in the partition that it names.
type byHand struct{}

func (byHand) Balance(m kafka.Message, _ ...int) int { return m.Partition }

func createTopic(t *testing.T, client *kafka.Client, name string, partitions int) {
	res, err := client.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: name, NumPartitions: partitions, ReplicationFactor: 1,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: "message.timestamp.type", ConfigValue: "LogAppendTime"}},
	}}})
	if err == nil {
		err = res.Errors[name]
	}
	if err != nil {
		t.Fatal(err)
	}
}
