package fenced

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// A broker of the test's own that forgets idle producers after three seconds, and later is killed.
func TestFencesOutliveTheBroker(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a broker")
	}
	broker := servers.StartKafka(t, map[string]string{"producer.id.expiration.check.interval.ms": "100"})
	c, ctx := newCluster(t, []string{broker.Addr()}, true), patient(t)
	c.expireProducers(t, sarama.IncrementalAlterConfigsOperationSet)

	fence := func(cfg Config, partition int32) (*Identity, *Writer) {
		id := c.acquire(t, cfg)
		w := id.NewWriter(c.topic, partition)
		if _, err := w.Fence(ctx); err != nil {
			t.Fatal(err)
		}
		return id, w
	}
	bystander := c.config(t, nil)
	bystander.TransactionalID += "-bystander"
	idle, _ := fence(bystander, 0)
	_, zombie := fence(c.config(t, nil), 0)
	_, other := fence(c.config(t, nil), 0)
	cfg := c.config(t, nil)
	cfg.HeartbeatEvery = time.Second
	owner, beating := fence(cfg, 0)
	start(t, beating.Run)

	testrun.Eventually(t, "the idle producer is forgotten, the owner is not", func() bool {
		known := c.producers(t)
		return !slices.Contains(known, idle.ProducerID()) && slices.Contains(known, owner.ProducerID())
	})
	if _, err := zombie.Fence(ctx); !errors.Is(err, ErrFenced) {
		t.Fatalf("in spite of the heartbeats a zombie appended: %v", err)
	}

	// It would not know a batch again either, when the same is sent after the crash.
	c.expireProducers(t, sarama.IncrementalAlterConfigsOperationDelete)

	// The broker crashes while the next owner works, which has more patience.
	_, w := fence(c.config(t, nil), 0)
	start(t, w.Run)
	check := appendOverACrash(t, w, broker)
	if _, err := other.Fence(ctx); !errors.Is(err, ErrFenced) {
		t.Fatalf("after the broker's crash a zombie appended: %v", err)
	}
	check(c.log(t))
}

// appendOverACrash returns what compares the log with what was appended and told.
func appendOverACrash(t *testing.T, w *Writer, broker *servers.KafkaProc) (check func(log []message)) {
	const n = 3000
	ctx := patient(t)
	var got []int64
	for i := range n {
		if i == n/2 {
			broker.Kill()
		}
		err := w.Append(ctx, rec(fmt.Sprint(i)), i%100 == 0, func(offset int64, _ time.Time, err error) {
			if err != nil {
				t.Errorf("record %d: %v", i, err)
			}
			got = append(got, offset)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	broker.Start()
	if err := w.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	return func(log []message) {
		records := data(log)
		if len(records) != n || len(got) != n {
			t.Fatalf("%d records, %d dones, want %d", len(records), len(got), n)
		}
		for i, m := range records {
			if m.key != fmt.Sprint(i) || m.offset != got[i] {
				t.Fatalf("record %d is %s at %d, told %d", i, m.key, m.offset, got[i])
			}
		}
	}
}

// expireProducers lets the broker forget producers after three seconds, or, again, a day.
func (c cluster) expireProducers(t *testing.T, op sarama.IncrementalAlterConfigsOperation) {
	ms := "3000"
	change := map[string]sarama.IncrementalAlterConfigsEntry{"producer.id.expiration.ms": {Operation: op, Value: &ms}}
	if err := c.admin(t).IncrementalAlterConfig(sarama.BrokerResource, "", change, false); err != nil {
		t.Fatal(err)
	}
}

// producers are the ids that the broker knows for partition 0.
func (c cluster) producers(t *testing.T) (ids []int64) {
	b, err := c.client(t, nil).Leader(c.topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := b.DescribeProducers(&sarama.DescribeProducersRequest{Topics: []sarama.DescribeProducersRequestTopic{{Name: c.topic, PartitionIndexes: []int32{0}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			for _, a := range p.ActiveProducers {
				ids = append(ids, a.ProducerID)
			}
		}
	}
	return ids
}
