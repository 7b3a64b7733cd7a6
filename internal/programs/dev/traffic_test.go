package dev

import (
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// An input that ends before Kafka takes anything is sent all the same: on a slow machine it was dropped.
func TestAnInputIsSentBeforeItHasEnded(t *testing.T) {
	k, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	var asked atomic.Int32
	k.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
		k.KeepControl()
		asked.Add(1)
		return nil, nil, false
	})
	var log, out testrun.Output
	e := event.Event{API: "a.b", UID: "1", Cost: event.One, Time: event.NoTime, BrokerTime: event.NoTime}
	s := &stack{
		settings: &settings{prefix: "late", log: log.Logger(), traffic: &traffic{events: []event.Event{e, e, e}}},
		kafka:    &kafkaconn.Kafka{Brokers: k.ListenAddrs()}, registry: prometheus.NewRegistry(),
	}
	done := make(chan error, 1)
	go func() { done <- s.send(t.Context(), newScreen(&out, s.registry, "", "")) }()
	testrun.Eventually(t, "it was tried often", func() bool { return asked.Load() >= 12 || len(done) > 0 })
	if len(done) > 0 {
		t.Fatalf("the input has ended, and nothing was sent: %s", log.String())
	}
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(k.ListenAddrs()...), Transport: transport}
	if _, err := client.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: "late.events", NumPartitions: 1, ReplicationFactor: 1}}}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := k.PartitionInfo("late.events", 0).HighWatermark; n == 0 || !out.Has("the input has ended") {
		t.Errorf("%d records, and the screen says %q", n, out.String())
	}
}
