package topiclog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/internal/devstack"
	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/internal/servers"
)

// What was aborted is not read, nor what is not committed yet: an aggregator counts neither.
func TestOnlyWhatIsCommittedIsRead(t *testing.T) {
	t.Run("kfake", func(t *testing.T) {
		s, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		testCommitted(t, s.Kafka)
	})
	t.Run("kafka", func(t *testing.T) { testCommitted(t, servers.Kafka(t)) })
}

func testCommitted(t *testing.T, brokers []string) {
	topic := servers.Name(t)
	servers.DropTopics(t, brokers, topic)
	c, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	create := kmsg.NewPtrCreateTopicsRequest()
	create.TimeoutMillis = 10_000
	is := kmsg.NewCreateTopicsRequestTopic()
	is.Topic, is.NumPartitions, is.ReplicationFactor = topic, 1, 1
	create.Topics = append(create.Topics, is)
	if _, err := create.RequestWith(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	transaction := func(name string) {
		if err := c.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			rec := &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "%s %d", name, i)}
			if err := c.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	end := func(how kgo.TransactionEndTry) {
		if err := c.EndTransaction(t.Context(), how); err != nil {
			t.Fatal(err)
		}
	}
	transaction("aborted")
	end(kgo.TryAbort)
	transaction("committed")
	end(kgo.TryCommit)
	transaction("aborted too")
	end(kgo.TryAbort)
	if got, want := values(t, brokers, topic), []string{"committed 0", "committed 1", "committed 2"}; !slices.Equal(got, want) {
		t.Errorf("read %q", got)
	}
	transaction("open")
	if got, want := values(t, brokers, topic), []string{"committed 0", "committed 1", "committed 2"}; !slices.Equal(got, want) {
		t.Errorf("beside an open transaction: read %q", got)
	}
	end(kgo.TryCommit)
	if got := values(t, brokers, topic); len(got) != 6 {
		t.Errorf("when it was committed: read %q", got)
	}
}

func values(t *testing.T, brokers []string, topic string) (all []string) {
	t.Helper()
	l, err := Open(t.Context(), Config{Kafka: &ops.Kafka{Brokers: brokers}, Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for {
		m, err := l.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(m.Value))
	}
}
