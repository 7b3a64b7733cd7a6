package devstack_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Producers that lie about the time write to a topic of LogAppendTime and to one of
// CreateTime; every client reads from the first what the broker's clock said, and from the
// second what was written.
func TestRecordsCarryTheTimeOfTheirAppend(t *testing.T) {
	t.Parallel()
	s := start(t)
	lie := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	type write struct {
		name    string
		produce func(t *testing.T, brokers []string, topic string, times []time.Time)
	}
	var writers []write
	for _, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP,
		sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD} {
		for size, value := range map[string]string{"": "value", ", large": strings.Repeat("value", 20_000)} {
			writers = append(writers, write{"sarama " + codec.String() + size,
				func(t *testing.T, brokers []string, topic string, times []time.Time) {
					produceSarama(t, brokers, topic, codec, value, times)
				}})
		}
	}
	writers = append(writers, write{"kafka-go", produceKafkaGo}, write{"franz-go", produceFranz})

	for i, w := range writers {
		t.Run(w.name, func(t *testing.T) {
			appended, created := fmt.Sprint("append-", i), fmt.Sprint("create-", i)
			createTopic(t, s.Kafka, appended, 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
			createTopic(t, s.Kafka, created, 1, nil)
			times := []time.Time{lie, lie.Add(time.Hour), lie.Add(-time.Hour)}

			before := time.Now().Truncate(time.Millisecond)
			w.produce(t, s.Kafka, appended, times)
			w.produce(t, s.Kafka, created, times)
			after := time.Now()

			for client, consume := range readers {
				for i, at := range consume(t, s.Kafka, appended, len(times)) {
					if at.Before(before) || at.After(after) {
						t.Errorf("%s reads record %d of %v, appended in [%v, %v]", client, i, at, before, after)
					}
				}
				for i, at := range consume(t, s.Kafka, created, len(times)) {
					if !at.Equal(times[i]) {
						t.Errorf("%s reads record %d of %v, created at %v", client, i, at, times[i])
					}
				}
			}
		})
	}
}

func produceSarama(t *testing.T, brokers []string, topic string, codec sarama.CompressionCodec, value string, times []time.Time) {
	t.Helper()
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Producer.Return.Successes = true
	cfg.Producer.Compression = codec
	cfg.Producer.Flush.Messages = len(times)
	p, err := sarama.NewSyncProducer(brokers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	var msgs []*sarama.ProducerMessage
	for i, at := range times {
		msgs = append(msgs, &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(fmt.Sprint(i)),
			Value: sarama.StringEncoder(value), Timestamp: at,
			Headers: []sarama.RecordHeader{{Key: []byte("h"), Value: []byte("v")}}})
	}
	if err := p.SendMessages(msgs); err != nil {
		t.Fatal(err)
	}
}

func produceKafkaGo(t *testing.T, brokers []string, topic string, times []time.Time) {
	t.Helper()
	w := &kafka.Writer{Addr: kafka.TCP(brokers...), Topic: topic, RequiredAcks: kafka.RequireAll,
		BatchSize: len(times), Transport: &kafka.Transport{}}
	defer func() {
		_ = w.Close()
		w.Transport.(*kafka.Transport).CloseIdleConnections()
	}()
	var msgs []kafka.Message
	for i, at := range times {
		msgs = append(msgs, kafka.Message{Key: []byte(fmt.Sprint(i)), Value: []byte("value"), Time: at})
	}
	if err := w.WriteMessages(t.Context(), msgs...); err != nil {
		t.Fatal(err)
	}
}

func produceFranz(t *testing.T, brokers []string, topic string, times []time.Time) {
	t.Helper()
	cl := franz(t, brokers)
	defer cl.Close()
	var records []*kgo.Record
	for i, at := range times {
		records = append(records, &kgo.Record{Topic: topic, Key: []byte(fmt.Sprint(i)), Value: []byte("value"), Timestamp: at})
	}
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// readers return the timestamps of a topic's first n records, which must be whole.
var readers = map[string]func(t *testing.T, brokers []string, topic string, n int) []time.Time{
	"sarama": func(t *testing.T, brokers []string, topic string, n int) []time.Time {
		t.Helper()
		cfg := sarama.NewConfig()
		cfg.Version = sarama.V2_8_0_0
		cfg.Consumer.MaxWaitTime = 20 * time.Millisecond
		c, err := sarama.NewConsumer(brokers, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		p, err := c.ConsumePartition(topic, 0, sarama.OffsetOldest)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.Close() }()
		var out []time.Time
		for range n {
			m := <-p.Messages()
			check(t, len(out), m.Key, m.Value)
			out = append(out, m.Timestamp)
		}
		return out
	},
	"kafka-go": func(t *testing.T, brokers []string, topic string, n int) []time.Time {
		t.Helper()
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: brokers, Topic: topic, MaxWait: 50 * time.Millisecond})
		defer func() { _ = r.Close() }()
		var out []time.Time
		for range n {
			m, err := r.ReadMessage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			check(t, len(out), m.Key, m.Value)
			out = append(out, m.Time)
		}
		return out
	},
	"franz-go": func(t *testing.T, brokers []string, topic string, n int) []time.Time {
		t.Helper()
		cl := franz(t, brokers, kgo.ConsumeTopics(topic))
		defer cl.Close()
		var out []time.Time
		for len(out) < n {
			f := cl.PollFetches(t.Context())
			if err := f.Err(); err != nil {
				t.Fatal(err)
			}
			f.EachRecord(func(r *kgo.Record) {
				check(t, len(out), r.Key, r.Value)
				out = append(out, r.Timestamp)
			})
		}
		return out
	},
}

func check(t *testing.T, i int, key, value []byte) {
	t.Helper()
	if string(key) != fmt.Sprint(i) || strings.Trim(string(value), "aeluv") != "" || len(value)%5 != 0 || !bytes.HasPrefix(value, []byte("value")) {
		t.Errorf("record %d is %q = %.100q", i, key, value)
	}
}

func franz(t *testing.T, brokers []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(brokers...))...)
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

func createTopic(t *testing.T, brokers []string, topic string, partitions int32, configs map[string]string) {
	t.Helper()
	a := admin(t, brokers)
	entries := map[string]*string{}
	for k, v := range configs {
		entries[k] = &v
	}
	err := a.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: entries}, false)
	if err != nil {
		t.Fatal(err)
	}
}

func admin(t *testing.T, brokers []string) sarama.ClusterAdmin {
	t.Helper()
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	a, err := sarama.NewClusterAdmin(brokers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}
