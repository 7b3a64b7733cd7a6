package rig

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tallygate/tallygate/pipeline/blocklist/internal/store"
	"github.com/tallygate/tallygate/verdict"
)

// Broker is a Kafka with a verdict topic, and the owner who writes it.
type Broker struct {
	t      testing.TB
	Addrs  []string
	Client *kgo.Client
	Ends   map[int32]int64 // of the partitions
}

// Topic is the verdict topic.
const Topic = "tallygate.verdicts"

// NewBroker starts one that runs as long as the test.
func NewBroker(t testing.TB, partitions int32) *Broker {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, Topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &Broker{t: t, Addrs: cluster.ListenAddrs(), Client: client, Ends: map[int32]int64{}}
}

// Write appends records to a partition and returns them as the owner would offer them.
func (b *Broker) Write(partition int32, records ...store.Record) (first, next int64, offered []store.Record) {
	b.t.Helper()
	batch := make([]*kgo.Record, len(records))
	for i, r := range records {
		batch[i] = &kgo.Record{Topic: Topic, Partition: partition, Key: r.Key, Value: r.Value}
	}
	if err := b.Client.ProduceSync(context.Background(), batch...).FirstErr(); err != nil {
		b.t.Fatal(err)
	}
	for i, r := range records {
		r.Offset = batch[i].Offset
		if !verdict.OwnRecord(r.Key) {
			offered = append(offered, r)
		}
	}
	b.Ends[partition] = batch[len(batch)-1].Offset + 1
	return batch[0].Offset, b.Ends[partition], offered
}

// Offer writes records to partition 0 as its owner, and hands them to a publisher.
func Offer(to interface {
	Offer(partition int32, first, next int64, records []store.Record)
}, kafka *Broker, records ...store.Record) {
	first, next, offered := kafka.Write(0, records...)
	to.Offer(0, first, next, offered)
}
