package publish

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/store"
)

func TestTransactionMarkersAreSkipped(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := rig.NewBroker(t, 1), rig.NewMemory()
		tx, err := kgo.NewClient(kgo.SeedBrokers(kafka.Addrs...), kgo.TransactionalID("a foreign writer"), kgo.DefaultProduceTopic(rig.Topic))
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Close()
		for _, uid := range []string{"1", "2"} {
			r := rig.Record(rig.Block(uid, 1, time.Hour))
			if err := tx.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := tx.ProduceSync(t.Context(), &kgo.Record{Key: r.Key, Value: r.Value}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if err := tx.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
				t.Fatal(err)
			}
		}
		p, _ := startPublisher(t, kafka, client, func(c *Config) { c.PublishOnly = true })
		follow(t, client, sink, 1)
		testrun.Eventually(t, "both are blocked", func() bool { return sink.Has("uid=1|r") && sink.Has("uid=2|r") })
		testrun.Eventually(t, "the end is reached, behind a marker", func() bool { return p.Stats().Partitions[0].Reached == 4 })
	})
}

func TestALogThatHasDeletedItsBeginning(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := rig.NewBroker(t, 1), rig.NewMemory()
		for _, uid := range []string{"1", "2", "3"} {
			kafka.Write(0, rig.Record(rig.Block(uid, 1, time.Hour)))
		}
		req := kmsg.NewPtrDeleteRecordsRequest()
		topic := kmsg.NewDeleteRecordsRequestTopic()
		topic.Topic = rig.Topic
		partition := kmsg.NewDeleteRecordsRequestTopicPartition()
		partition.Offset = 2
		topic.Partitions = append(topic.Partitions, partition)
		req.Topics = append(req.Topics, topic)
		if _, err := req.RequestWith(t.Context(), kafka.Client); err != nil {
			t.Fatal(err)
		}
		p, _ := startPublisher(t, kafka, client, nil)
		p.Own(0)
		follow(t, client, sink, 1)
		testrun.Eventually(t, "what is left is blocked", func() bool { return sink.Has("uid=3|r") })
		if got := sink.Text(); len(got) != 1 {
			t.Errorf("%v, want the third only", got)
		}
	})
}

func TestATopicThatWasRecreatedIsReported(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := rig.NewBroker(t, 1), rig.NewMemory()
		kafka.Write(0, rig.Record(rig.Block("1", 1, time.Hour)))
		s := rig.NewStore(t, client)
		if _, ok, err := s.Apply(t.Context(), store.Batch{Start: 0, Next: 1000}); err != nil || !ok {
			t.Fatal(ok, err)
		}
		p, _ := startPublisher(t, kafka, client, nil)
		p.Own(0)
		follow(t, client, sink, 1)
		testrun.Eventually(t, "it is reported", func() bool {
			s := p.Stats()
			return s.Failing && s.LastError != nil && strings.Contains(s.LastError.Error(), "delete the blocklist's keys")
		})
		if err := client.FlushAll(context.Background()).Err(); err != nil { // as it says
			t.Fatal(err)
		}
		p.Disown(0)
		p.Own(0)
		testrun.Eventually(t, "1 is blocked", func() bool { return sink.Has("uid=1|r") && !p.Stats().Failing })
	})
}

func TestKafkaIsAwayForAWhile(t *testing.T) {
	client := rig.Dial(t, rig.RealRedis(t))
	p, err := New(Config{
		Redis: client, Kafka: []string{servers.FreeAddr(t)}, Partitions: 1, PublishOnly: true, Heartbeat: 50 * time.Millisecond, Logger: rig.Quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := testrun.Start(t, p.Run)
	testrun.Eventually(t, "it is reported", func() bool { return p.Stats().Failing })
	stop()
	if applied := p.Stats().Partitions[0].Applied; applied != 0 {
		t.Errorf("applied up to %d without having read anything", applied)
	}
}

// TestPartitionsAreReadInTurns: kafka-go takes 64 KiB for each batch, and verdicts that were issued
// one by one are a batch each. Four partitions of 5,000 of them took a gigabyte when they were read
// at once.
func TestPartitionsAreReadInTurns(t *testing.T) {
	kafka := rig.NewBroker(t, 1)
	kafka.Write(0, rig.Record(rig.Block("42", 1, time.Hour)))
	transport := &kafkago.Transport{ClientID: t.Name()}
	defer transport.CloseIdleConnections()
	p, err := New(Config{Redis: rig.Dial(t, miniredis.RunT(t).Addr()), Kafka: kafka.Addrs, Partitions: 1, Logger: rig.Quiet(), Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	p.topic.Turn <- struct{}{} // another partition's
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if f, err := p.topic.Fetch(ctx, 0, 0, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("it is read out of turn: %+v, %v", f, err)
	}
	<-p.topic.Turn
	for range 2 { // and gives its turn back
		if f, err := p.topic.Fetch(t.Context(), 0, 0, 0); err != nil || len(f.Records) != 1 {
			t.Errorf("in turn: %+v, %v", f, err)
		}
	}
}
