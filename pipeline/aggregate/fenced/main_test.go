package fenced

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// go-metrics, which sarama links, has one ticker for the life of the process.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

// cluster is a broker to test against, with a topic of its own per test.
type cluster struct {
	addrs []string
	real  bool // Apache Kafka; else kfake
	topic string
}

// onEach runs a test on kfake, and on Kafka if TALLYGATE_TEST_KAFKA names one.
func onEach(t *testing.T, test func(t *testing.T, c cluster)) {
	t.Run("kfake", func(t *testing.T) {
		servers.Embedded(t)
		test(t, fake(t))
	})
	t.Run("kafka", func(t *testing.T) { test(t, kafka(t)) })
}

func fake(t *testing.T) cluster {
	k, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return newCluster(t, k.ListenAddrs(), false)
}

// kafka is Apache Kafka, for what only that one proves.
func kafka(t *testing.T) cluster {
	return newCluster(t, servers.Kafka(t), true)
}

func newCluster(t *testing.T, addrs []string, real bool) cluster {
	c := cluster{addrs: addrs, real: real, topic: fmt.Sprintf("fenced-%x", rand.Uint64())}
	c.createTopic(t, nil)
	return c
}

func (c cluster) admin(t *testing.T) sarama.ClusterAdmin {
	a, err := sarama.NewClusterAdminFromClient(c.client(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (c cluster) createTopic(t *testing.T, config map[string]*string) {
	a := c.admin(t)
	err := a.CreateTopic(c.topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1, ConfigEntries: config}, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.admin(t).DeleteTopic(c.topic) })
	client := c.client(t, nil)
	testrun.Eventually(t, "the topic has its leaders", func() bool {
		_, err0 := client.GetOffset(c.topic, 0, sarama.OffsetNewest)
		_, err1 := client.GetOffset(c.topic, 1, sarama.OffsetNewest)
		return err0 == nil && err1 == nil
	})
}

// client closes with the test. dial, if not nil, opens its connections.
func (c cluster) client(t *testing.T, dial *dialer) sarama.Client {
	conf := sarama.NewConfig()
	conf.Version = sarama.V2_8_0_0
	conf.Net.DialTimeout, conf.Net.ReadTimeout, conf.Net.WriteTimeout = 10*time.Second, 30*time.Second, 10*time.Second
	conf.Metadata.Retry.Backoff = 10 * time.Millisecond
	if dial != nil {
		conf.Net.Proxy.Enable, conf.Net.Proxy.Dialer = true, dial
	}
	client, err := sarama.NewClient(c.addrs, conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// link closes with the test.
func (c cluster) link(t *testing.T, dial *dialer) *Link {
	l := NewLink(c.client(t, dial))
	t.Cleanup(l.Close)
	return l
}

// config is an owner with connections of its own, as another process would have.
func (c cluster) config(t *testing.T, dial *dialer) Config {
	return Config{
		TransactionalID: c.topic + "-0",
		Urgent:          c.link(t, dial),
		Bulk:            c.link(t, dial),
		Log:             slog.New(slog.DiscardHandler),
	}
}

func (c cluster) acquire(t *testing.T, cfg Config) *Identity {
	id, err := Acquire(patient(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// message is a record that was read back.
type message struct {
	offset     int64
	key, value string
	tombstone  bool
	at         time.Time
}

// log reads partition 0 from its start to its end.
func (c cluster) log(t *testing.T) []message {
	client := c.client(t, nil)
	end, err := client.GetOffset(c.topic, 0, sarama.OffsetNewest)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = consumer.Close() }()
	var all []message
	if end == 0 {
		return nil
	}
	pc, err := consumer.ConsumePartition(c.topic, 0, sarama.OffsetOldest)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pc.Close() }()
	for {
		select {
		case m := <-pc.Messages():
			all = append(all, message{m.Offset, string(m.Key), string(m.Value), m.Value == nil, m.Timestamp})
			if m.Offset+1 == end {
				return all
			}
		case <-patient(t).Done():
			t.Fatal("the log cannot be read")
		}
	}
}

// data leaves the owners' own records out.
func data(all []message) []message {
	return slices.DeleteFunc(slices.Clone(all), func(m message) bool { return IsOwnerRecord([]byte(m.key)) })
}

// start runs f until the test ends; stop waits for it to return.
func start(t *testing.T, f func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	var err error
	returned := false
	stop = func() error {
		if !returned {
			cancel()
			err, returned = <-ended, true
		}
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// patient ends long after the test should have.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func rec(key string) Record { return Record{Key: []byte(key), Value: []byte("value of " + key)} }
