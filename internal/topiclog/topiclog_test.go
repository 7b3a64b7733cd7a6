package topiclog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/internal/devstack"
	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/internal/servers"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")) // sarama's, for good
}

// on runs a test against Kafka in this process and against the real one.
func on(t *testing.T, test func(t *testing.T, brokers []string)) {
	t.Run("kfake", func(t *testing.T) {
		s, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		test(t, s.Kafka)
	})
	t.Run("kafka", func(t *testing.T) { test(t, servers.Kafka(t)) })
}

// rig is a topic of the test's own.
type rig struct {
	brokers []string
	name    string
	writer  *kafka.Writer
}

func newRig(t *testing.T, brokers []string, partitions int, config ...kafka.ConfigEntry) *rig {
	t.Helper()
	r := &rig{brokers: brokers, name: servers.Name(t)}
	servers.DropTopics(t, brokers, r.name)
	transport := &kafka.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := &kafka.Client{Addr: kafka.TCP(brokers...), Timeout: 30 * time.Second, Transport: transport}
	res, err := client.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: r.name, NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: config,
	}}})
	if err == nil {
		err = res.Errors[r.name]
	}
	if err != nil {
		t.Fatal(err)
	}
	r.writer = &kafka.Writer{
		Transport: transport, Addr: kafka.TCP(brokers...), Topic: r.name, Balancer: byHand{},
		RequiredAcks: kafka.RequireAll, BatchSize: 1000, BatchTimeout: time.Millisecond,
	}
	t.Cleanup(func() { _ = r.writer.Close() })
	return r
}

// byHand leaves a message in the partition that it names.
type byHand struct{}

func (byHand) Balance(m kafka.Message, _ ...int) int { return m.Partition }

func (r *rig) write(t *testing.T, ms ...kafka.Message) {
	t.Helper()
	if err := r.writer.WriteMessages(t.Context(), ms...); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) open(t *testing.T, from, to time.Time) *Log {
	t.Helper()
	log, err := Open(t.Context(), Config{Kafka: &ops.Kafka{Brokers: r.brokers}, Topic: r.name, From: from, To: to})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return log
}

func (r *rig) read(t *testing.T, from, to time.Time) (values []string) {
	t.Helper()
	log := r.open(t, from, to)
	for {
		m, err := log.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, string(m.Value))
	}
	if log.Done() != log.Total() {
		t.Errorf("%d of %d offsets are done at the end", log.Done(), log.Total())
	}
	return values
}

// A span of time is read from all partitions in the order of the records' times, and nothing
// outside of it.
func TestASpanOfTime(t *testing.T) {
	on(t, func(t *testing.T, brokers []string) {
		r := newRig(t, brokers, 3)
		start := time.Now().Add(-time.Hour).Truncate(time.Second)
		at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
		for i, partition := range []int{0, 2, 0, 2, 2, 0} { // nothing in 1
			r.write(t, kafka.Message{Partition: partition, Time: at(10 * i), Value: fmt.Append(nil, i)})
		}
		for _, test := range []struct {
			name     string
			from, to time.Time
			want     string
		}{
			{"all", time.Time{}, time.Time{}, "0 1 2 3 4 5"},
			{"from a record on", at(20), time.Time{}, "2 3 4 5"},
			{"from between two on", at(21), time.Time{}, "3 4 5"},
			{"up to before a record", time.Time{}, at(30), "0 1 2"},
			{"up to between two", at(5), at(41), "1 2 3 4"},
			{"between two", at(11), at(19), ""},
			{"before the first", at(-10), at(0), ""},
			{"behind the last", at(51), time.Time{}, ""},
			{"to before from", at(30), at(20), ""},
		} {
			if got := strings.Join(r.read(t, test.from, test.to), " "); got != test.want {
				t.Errorf("%s: %q, want %q", test.name, got, test.want)
			}
		}
	})
}

// What comes after Open is not read: a reader ends, however busy the topic is.
func TestTheEndIsWhereItWas(t *testing.T) {
	on(t, func(t *testing.T, brokers []string) {
		r := newRig(t, brokers, 1)
		r.write(t, kafka.Message{Value: []byte("before")})
		log := r.open(t, time.Time{}, time.Time{})
		r.write(t, kafka.Message{Value: []byte("after")})
		if m, err := log.Next(t.Context()); err != nil || string(m.Value) != "before" {
			t.Fatalf("%v, %v", m, err)
		}
		if m, err := log.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("behind the end: %v, %v", m, err)
		}
	})
}

// More than one fetch brings, of several partitions: all of it once, and in order.
func TestManyFetches(t *testing.T) {
	on(t, func(t *testing.T, brokers []string) {
		r := newRig(t, brokers, 2)
		const n = 400
		start := time.Now().Add(-time.Hour).Truncate(time.Second)
		filling := strings.Repeat("x", 20_000)
		var ms []kafka.Message
		var want []string
		for i := range n {
			want = append(want, fmt.Sprintf("%03d%s", i, filling))
			ms = append(ms, kafka.Message{Partition: i % 2, Time: start.Add(time.Duration(i) * time.Millisecond), Value: []byte(want[i])})
		}
		r.write(t, ms...)
		if got := r.read(t, time.Time{}, time.Time{}); !slices.Equal(got, want) {
			t.Errorf("%d records, want %d in their order", len(got), n)
		}
	})
}

// Close ends what is being fetched, and so does the context.
func TestClosedInBetween(t *testing.T) {
	on(t, func(t *testing.T, brokers []string) {
		r := newRig(t, brokers, 2)
		r.write(t, kafka.Message{Value: []byte("a")}, kafka.Message{Partition: 1, Value: []byte("b")})
		log := r.open(t, time.Time{}, time.Time{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if m, err := log.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v", m, err)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatCannotBeOpened(t *testing.T) {
	on(t, func(t *testing.T, brokers []string) {
		_, err := Open(t.Context(), Config{Kafka: &ops.Kafka{Brokers: brokers}, Topic: "no-such-topic"})
		if err == nil || !strings.Contains(err.Error(), "no-such-topic") {
			t.Errorf("a topic that is not there: %v", err)
		}
	})
	_, err := Open(t.Context(), Config{})
	if err == nil || !strings.Contains(err.Error(), "no Kafka") || !strings.Contains(err.Error(), "no Topic") {
		t.Errorf("an empty config: %v", err)
	}
}

// A compacted topic has gaps, also at the ends of batches, and batches of which nothing is left: Kafka keeps
// the last one of each idempotent producer, empty. The latest record of each key is there all the same.
func TestACompactedTopic(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a broker")
	}
	broker := servers.StartKafka(t, map[string]string{"log.cleaner.backoff.ms": "100"})
	entry := func(name, value string) kafka.ConfigEntry {
		return kafka.ConfigEntry{ConfigName: name, ConfigValue: value}
	}
	r := newRig(t, []string{broker.Addr()}, 1, entry("cleanup.policy", "compact"), entry("min.cleanable.dirty.ratio", "0.001"),
		entry("segment.bytes", "1048576"), entry("max.compaction.lag.ms", "100"), entry("segment.ms", "100"))
	filling := strings.Repeat("x", 2000)
	const keys, rounds = 7, 600
	want := map[string]string{}
	var producer *kgo.Client
	for i := range rounds {
		if i%20 == 0 {
			if producer != nil {
				producer.Close()
			}
			var err error
			if producer, err = kgo.NewClient(kgo.SeedBrokers(broker.Addr()), kgo.DefaultProduceTopic(r.name), kgo.ProducerBatchCompression(kgo.NoCompression())); err != nil {
				t.Fatal(err)
			}
		}
		var records []*kgo.Record
		for k := range keys {
			if (i+k)%3 == 0 {
				continue
			}
			key, value := fmt.Sprint(k), fmt.Sprintf("%d of %d %s", i, k, filling)
			want[key] = value
			records = append(records, &kgo.Record{Key: []byte(key), Value: []byte(value)})
		}
		if err := producer.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	producer.Close()
	var read int
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		got := map[string]string{}
		read = 0
		log := r.open(t, time.Time{}, time.Time{})
		for {
			m, err := log.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			read++
			got[string(m.Key)] = string(m.Value)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("the latest records (- expected, + got)\n%s", diff)
		}
		if int64(read) < log.Total()/2 {
			return // it was compacted, and read to its end
		}
		if time.Now().After(deadline) {
			t.Fatalf("Kafka has compacted nothing: %d records at %d offsets", read, log.Total())
		}
	}
}
