package kafkalog

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// go-metrics, which sarama links, has one ticker for the life of the process.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

const patience = time.Minute

// everyKafka runs a test on the embedded Kafka and, where the environment names one, on a real one.
func everyKafka(t *testing.T, test func(t *testing.T, brokers []string)) {
	t.Run("kfake", func(t *testing.T) {
		servers.Embedded(t)
		test(t, fake(t).ListenAddrs())
	})
	t.Run("kafka", func(t *testing.T) { test(t, servers.Kafka(t)) })
}

func fake(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	k, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// client is kgo's, to make topics and records with.
func client(t *testing.T, brokers []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// newTopic makes a topic of the test's own.
func newTopic(t *testing.T, c *kgo.Client, partitions int32, configs map[string]string) string {
	t.Helper()
	name := servers.Name(t)
	createTopic(t, c, name, partitions, configs)
	return name
}

func createTopic(t *testing.T, c *kgo.Client, name string, partitions int32, configs map[string]string) {
	t.Helper()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	for key, value := range configs {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = key, kmsg.StringPtr(value)
		topic.Configs = append(topic.Configs, config)
	}
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) { // one of the same name may be on its way out
		req := kmsg.NewPtrCreateTopicsRequest()
		req.Topics = append(req.Topics, topic)
		req.TimeoutMillis = 10_000
		resp, err := req.RequestWith(t.Context(), c)
		if err == nil && resp.Topics[0].ErrorCode == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err, resp)
		}
	}
}

// produce appends records with these values.
func produce(t *testing.T, c *kgo.Client, topic string, partition int32, values ...string) {
	t.Helper()
	var records []*kgo.Record
	for _, v := range values {
		records = append(records, &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)})
	}
	if err := c.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// run starts a fetcher, and ends it with the test.
func run(t *testing.T, cfg Config) *Fetcher {
	t.Helper()
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	f, stop, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return f
}

// take reads records until there are n.
func take(t *testing.T, r *Reader, n int) (records []Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(records) < n {
		c, err := r.Next(ctx)
		if err != nil {
			t.Fatalf("after %d of %d records: %v", len(records), n, err)
		}
		more, err := all(&c)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, more...)
	}
	return records
}

// end is the reader's error.
func end(t *testing.T, r *Reader) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		if _, err := r.Next(ctx); err != nil {
			return err
		}
	}
}

func values(from, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("value %d", from+i))
	}
	return out
}

// inOrder fails the test unless the records are values 0 to n-1, once each.
func inOrder(t *testing.T, records []Record, n int) {
	t.Helper()
	if len(records) != n {
		t.Fatalf("%d records, not %d", len(records), n)
	}
	for i, want := range values(0, n) {
		if string(records[i].Value) != want || records[i].Offset != int64(i) {
			t.Fatalf("record %d is %q at %d", i, records[i].Value, records[i].Offset)
		}
	}
}
