package devstack_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// What the engine asks of Kafka. Each promise is kept by the embedded broker and, where one
// is given, by a real one: a fake is only as good as this list.
var promises = []struct {
	name string
	test func(t *testing.T, brokers []string, prefix string)
	real bool // kept by Kafka only: package devstack says so
}{
	{"topics have configs", topicsHaveConfigs, false},
	{"offsets are found by time", offsetsByTime, false},
	{"a group shows its members", groupShowsMembers, false},
	{"a static member keeps its partitions", staticMember, false},
	{"a newer epoch fences", newerEpochFences, false},
	{"an owner refreshes its id", ownerRefreshes, false},
	{"a zombie does not refresh its id", zombieDoesNotRefresh, true},
	{"a repeated sequence is one record", repeatedSequence, false},
}

func TestPromisesOfTheEmbeddedKafka(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, p := range promises {
		if !p.real {
			t.Run(p.name, func(t *testing.T) { p.test(t, s.Kafka, servers.Name(t)) })
		}
	}
}

func TestPromisesOfKafka(t *testing.T) {
	brokers := servers.Kafka(t)
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			prefix := servers.Name(t)
			servers.DropTopics(t, brokers, prefix)
			p.test(t, brokers, prefix)
		})
	}
}

func topicsHaveConfigs(t *testing.T, brokers []string, topic string) {
	want := map[string]string{
		"cleanup.policy": "compact,delete", "message.timestamp.type": "LogAppendTime", "segment.bytes": "16777216",
		"min.insync.replicas": "1", "unclean.leader.election.enable": "false", "retention.ms": "-1",
		"compression.type": "lz4", "max.message.bytes": "2097152", "min.compaction.lag.ms": "1000",
	}
	createTopic(t, brokers, topic, 3, want)
	a := admin(t, brokers)
	err := a.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false)
	if !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		t.Errorf("a second creation: %v", err)
	}
	described, err := a.DescribeConfigs([]*sarama.ConfigResource{{Type: sarama.TopicResource, Name: topic}},
		sarama.DescribeConfigsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range described[0].Configs {
		got[e.Name] = e.Value
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
	meta, err := a.DescribeTopics([]string{topic})
	if err != nil || len(meta[0].Partitions) != 3 || meta[0].Err != sarama.ErrNoError {
		t.Errorf("described as %+v (%v)", meta, err)
	}
	missing, err := a.DescribeTopics([]string{topic + "-none"})
	if err != nil || missing[0].Err != sarama.ErrUnknownTopicOrPartition {
		t.Errorf("an unknown topic: %+v (%v)", missing[0], err)
	}
}

func offsetsByTime(t *testing.T, brokers []string, topic string) {
	createTopic(t, brokers, topic, 1, nil)
	at := time.UnixMilli(1_700_000_000_000)
	produceSarama(t, brokers, topic, sarama.CompressionNone, "value", []time.Time{at, at.Add(time.Second), at.Add(2 * time.Second)})
	cl := client(t, brokers)
	for when, want := range map[int64]int64{
		sarama.OffsetOldest: 0, sarama.OffsetNewest: 3, at.UnixMilli() + 1: 1, at.UnixMilli() + 5000: -1,
	} {
		if got, err := cl.GetOffset(topic, 0, when); err != nil || got != want {
			t.Errorf("the offset at %d is %d (%v), want %d", when, got, err, want)
		}
	}
}

func groupShowsMembers(t *testing.T, brokers []string, name string) {
	createTopic(t, brokers, name, 4, nil)
	one := join(t, brokers, name, "", "10.0.0.1:8081", minSession)
	one.assigned(t, 4)
	two := join(t, brokers, name, "", "10.0.0.2:8081", minSession)
	two.assigned(t, 2)
	one.assigned(t, 2)

	groups, err := admin(t, brokers).DescribeConsumerGroups([]string{name})
	if err != nil || len(groups) != 1 || groups[0].State != "Stable" {
		t.Fatalf("described as %+v (%v)", groups, err)
	}
	var addresses []string
	for _, m := range groups[0].Members {
		meta, err := m.GetMemberMetadata()
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, string(meta.UserData))
		assignment, err := m.GetMemberAssignment()
		if err != nil || len(assignment.Topics[name]) != 2 {
			t.Errorf("member %s has %v (%v)", meta.UserData, assignment, err)
		}
	}
	slices.Sort(addresses)
	if want := []string{"10.0.0.1:8081", "10.0.0.2:8081"}; !slices.Equal(addresses, want) {
		t.Errorf("members advertise %v, want %v", addresses, want)
	}
	two.leave(t)
	one.assigned(t, 4)
	one.leave(t)
}

func staticMember(t *testing.T, brokers []string, name string) {
	createTopic(t, brokers, name, 2, nil)
	one := join(t, brokers, name, "one", "", minSession)
	one.assigned(t, 2)
	one.leave(t) // a static member's Close sends no LeaveGroup
	again := join(t, brokers, name, "one", "", minSession)
	again.assigned(t, 2)
	again.leave(t)
}

func newerEpochFences(t *testing.T, brokers []string, topic string) {
	createTopic(t, brokers, topic, 1, nil)
	w := writer{t: t, client: client(t, brokers), topic: topic}
	old := w.init(topic + "-0")
	if got := w.write(old, 0, "old owner"); got.Err != sarama.ErrNoError {
		t.Fatal(got.Err)
	}
	now := w.init(topic + "-0")
	if now.ProducerID != old.ProducerID || now.ProducerEpoch <= old.ProducerEpoch {
		t.Fatalf("a second InitProducerID gave %+v after %+v", now, old)
	}
	if got := w.write(now, 0, "fence"); got.Err != sarama.ErrNoError {
		t.Fatal(got.Err)
	}
	if got := w.write(old, 1, "zombie"); got.Err != sarama.ErrInvalidProducerEpoch {
		t.Errorf("the old epoch's write: %v, want %v", got.Err, sarama.ErrInvalidProducerEpoch)
	}
	if got := w.write(now, 5, "a gap"); got.Err != sarama.ErrOutOfOrderSequenceNumber {
		t.Errorf("a sequence that skips: %v, want %v", got.Err, sarama.ErrOutOfOrderSequenceNumber)
	}
	if end, err := client(t, brokers).GetOffset(topic, 0, sarama.OffsetNewest); err != nil || end != 2 {
		t.Errorf("the log ends at %d (%v), want 2", end, err)
	}
}

func ownerRefreshes(t *testing.T, brokers []string, topic string) {
	createTopic(t, brokers, topic, 1, nil)
	w := writer{t: t, client: client(t, brokers), topic: topic}
	first := w.init(topic + "-0")
	w.write(first, 0, "a")
	second := w.refresh(topic+"-0", first)
	if second.Err != sarama.ErrNoError || second.ProducerID != first.ProducerID || second.ProducerEpoch <= first.ProducerEpoch {
		t.Fatalf("%+v was refreshed to %+v", first, second)
	}
	if got := w.write(second, 0, "b"); got.Err != sarama.ErrNoError {
		t.Errorf("the first write after a refresh: %v", got.Err)
	}
}

// The embedded broker gives the zombie an epoch above its successor's.
func zombieDoesNotRefresh(t *testing.T, brokers []string, topic string) {
	createTopic(t, brokers, topic, 1, nil)
	w := writer{t: t, client: client(t, brokers), topic: topic}
	zombie := w.init(topic + "-0")
	successor := w.init(topic + "-0")
	if got := w.refresh(topic+"-0", zombie); got.Err == sarama.ErrNoError {
		t.Errorf("%+v was refreshed to %+v, behind %+v", zombie, got, successor)
	}
}

func repeatedSequence(t *testing.T, brokers []string, topic string) {
	createTopic(t, brokers, topic, 1, map[string]string{"cleanup.policy": "compact"})
	w := writer{t: t, client: client(t, brokers), topic: topic}
	id := w.init("")
	first := w.write(id, 0, "a")
	second := w.write(id, 1, "b")
	repeat := w.write(id, 0, "a")
	if first.Offset != 0 || second.Offset != 1 || repeat.Err != sarama.ErrNoError || repeat.Offset != 0 {
		t.Errorf("written at %d and %d, repeated: %v at %d", first.Offset, second.Offset, repeat.Err, repeat.Offset)
	}
}

// A killed member's partitions move to another after a session timeout of one second.
func TestShortSessions(t *testing.T) {
	t.Parallel()
	s := start(t)
	createTopic(t, s.Kafka, "short", 2, nil)
	one := join(t, s.Kafka, "short", "static", "", time.Second)
	one.assigned(t, 2)
	one.leave(t) // the group keeps its place: gone without a word
	two := join(t, s.Kafka, "short", "", "", time.Second)
	two.assigned(t, 2)
	two.leave(t)
}

// minSession is the least session timeout that brokers take by default.
const minSession = 6 * time.Second

// member is a consumer in a group; it reports how many partitions each generation gave it.
type member struct {
	counts chan int
	group  sarama.ConsumerGroup
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func join(t *testing.T, brokers []string, name, instance, userData string, session time.Duration) *member {
	t.Helper()
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Consumer.Group.InstanceId = instance
	cfg.Consumer.Group.Member.UserData = []byte(userData)
	cfg.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	cfg.Consumer.Group.Session.Timeout = session
	cfg.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
	group, err := sarama.NewConsumerGroup(brokers, name, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m := &member{counts: make(chan int, 100), group: group, cancel: cancel}
	m.done.Go(func() {
		for ctx.Err() == nil {
			_ = group.Consume(ctx, []string{name}, m)
		}
	})
	t.Cleanup(func() { cancel(); m.done.Wait(); _ = group.Close() })
	return m
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	n := 0
	for _, ps := range s.Claims() {
		n += len(ps)
	}
	m.counts <- n
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim) error {
	<-s.Context().Done()
	return nil
}

// assigned waits for a generation in which the member has n partitions.
func (m *member) assigned(t *testing.T, n int) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case got := <-m.counts:
			if got == n {
				return
			}
		case <-deadline:
			t.Fatalf("no generation with %d partitions", n)
		}
	}
}

func (m *member) leave(t *testing.T) {
	t.Helper()
	m.cancel()
	m.done.Wait()
	if err := m.group.Close(); err != nil {
		t.Error(err)
	}
}

// writer produces single records as the engine does, with ids and sequences of its own.
type writer struct {
	t      *testing.T
	client sarama.Client
	topic  string
}

// init asks for a producer id; with a transactional id it raises that one's epoch.
func (w writer) init(txn string) *sarama.InitProducerIDResponse {
	w.t.Helper()
	req := &sarama.InitProducerIDRequest{Version: 4, TransactionTimeout: time.Minute, ProducerID: -1, ProducerEpoch: -1}
	if txn != "" {
		req.TransactionalID = &txn
	}
	var id *sarama.InitProducerIDResponse
	testrun.Eventually(w.t, "a producer id is given", func() bool { // its coordinator may still load
		b, err := w.client.Controller()
		if txn != "" {
			b, err = w.client.TransactionCoordinator(txn)
		}
		if err != nil {
			return false
		}
		id, err = b.InitProducerID(req)
		return err == nil && id.Err == sarama.ErrNoError
	})
	return id
}

// refresh raises the epoch of an id that its owner still holds.
func (w writer) refresh(txn string, id *sarama.InitProducerIDResponse) *sarama.InitProducerIDResponse {
	w.t.Helper()
	b, err := w.client.TransactionCoordinator(txn)
	if err != nil {
		w.t.Fatal(err)
	}
	got, err := b.InitProducerID(&sarama.InitProducerIDRequest{Version: 4, TransactionalID: &txn,
		TransactionTimeout: time.Minute, ProducerID: id.ProducerID, ProducerEpoch: id.ProducerEpoch})
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func (w writer) write(id *sarama.InitProducerIDResponse, sequence int32, value string) *sarama.ProduceResponseBlock {
	w.t.Helper()
	now := time.Now()
	req := &sarama.ProduceRequest{RequiredAcks: sarama.WaitForAll, Timeout: 10_000, Version: 7}
	req.AddBatch(w.topic, 0, &sarama.RecordBatch{Version: 2, ProducerID: id.ProducerID, ProducerEpoch: id.ProducerEpoch,
		FirstSequence: sequence, FirstTimestamp: now, MaxTimestamp: now,
		Records: []*sarama.Record{{Key: []byte("k"), Value: []byte(value)}}})
	var block *sarama.ProduceResponseBlock
	testrun.Eventually(w.t, "the leader answers", func() bool { // it may be a moment behind the topic's creation
		b, err := w.client.Leader(w.topic, 0)
		if err != nil {
			return false
		}
		resp, err := b.Produce(req)
		if err != nil {
			w.t.Fatal(err)
		}
		block = resp.GetBlock(w.topic, 0)
		return block.Err != sarama.ErrNotLeaderForPartition && block.Err != sarama.ErrUnknownTopicOrPartition
	})
	return block
}

func client(t *testing.T, brokers []string) sarama.Client {
	t.Helper()
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cl, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close() })
	return cl
}
