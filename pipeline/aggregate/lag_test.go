package aggregate

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
)

// lag returns the metrics of all partitions together; false while one of them is missing.
func (m *member) lag(t *testing.T) (records, seconds float64, ok bool) {
	t.Helper()
	for id := range int32(rigPartitions) {
		n, there := m.sample(t, "tallygate_partition_lag", fmt.Sprintf("partition=%d", id))
		s, also := m.sample(t, "tallygate_partition_lag_seconds", fmt.Sprintf("partition=%d", id))
		if !there || !also {
			return 0, 0, false
		}
		records, seconds = records+n, max(seconds, s)
	}
	return records, seconds, true
}

func (r *rig) inStep(m *member) {
	r.t.Helper()
	eventually(r.t, "all is counted, and said to be", func() bool {
		n, s, ok := m.lag(r.t)
		return ok && n == 0 && s == 0 && m.Ready() == nil
	})
}

// behind waits until the member reports that counting has stopped: in records, in seconds, by a
// reason, and by readiness.
func (r *rig) behind(m *member, reason string, records float64) {
	r.t.Helper()
	eventually(r.t, "it is told that nothing is counted", func() bool {
		n, s, ok := m.lag(r.t)
		failed, _ := m.sample(r.t, "tallygate_kafka_errors_total", "reason="+reason)
		return ok && n >= records && s > owner.AnswerWithin.Seconds() && m.Ready() != nil && failed > 0
	})
}

// A partition whose fetches are refused is not caught up. Once, it showed lag 0 and was ready.
func TestWhatIsRefusedIsNoLagOfZero(t *testing.T) {
	t.Parallel()
	servers.Embedded(t)
	k, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	r := newRig(t, k.ListenAddrs())
	m := r.begin(compile(t, byIPAndUID), func(c *Config) { c.BrokerTime, c.SessionTimeout = "create", patient })
	l := r.load()
	l.emit(40)
	l.counted(m)
	r.inStep(m)
	var refused atomic.Bool
	refused.Store(true)
	id := k.TopicInfo(r.names.Events).TopicID
	k.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
		k.KeepControl()
		fetch := req.(*kmsg.FetchRequest)
		resp := fetch.ResponseKind().(*kmsg.FetchResponse)
		hit := false
		for _, t := range fetch.Topics {
			topic := kmsg.NewFetchResponseTopic()
			topic.TopicID = t.TopicID
			for _, p := range t.Partitions {
				part := kmsg.NewFetchResponseTopicPartition()
				if part.Partition = p.Partition; t.TopicID == id {
					part.ErrorCode, hit = kerr.TopicAuthorizationFailed.Code, true
				}
				topic.Partitions = append(topic.Partitions, part)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, hit && refused.Load()
	})
	l.emit(60)
	r.behind(m, "auth", 1)
	if err := m.Ready(); !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(err.Error(), r.names.Events) {
		t.Errorf("not ready, since: %v", err)
	}
	refused.Store(false)
	l.counted(m)
	r.inStep(m)
}

// Events of an open transaction wait for its end: that is lag. Its end marker is not.
func TestAnOpenTransactionIsLag(t *testing.T) {
	everyKafka(t, func(t *testing.T, r *rig) {
		m := r.begin(compile(t, yearly))
		c, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.TransactionalID(r.names.Group+"-producer"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		const n = 200
		for round, commit := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
			if err := c.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			for range n {
				rec := &kgo.Record{Topic: r.names.Events, Partition: event.Partition([]byte("u0"), rigPartitions), Key: []byte("u0"), Value: event.AppendJSON(nil, hit("u0", "a"))}
				c.Produce(t.Context(), rec, nil)
			}
			if err := c.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			eventually(t, "what waits for the transaction's end is lag", func() bool {
				records, _, ok := m.lag(t)
				return ok && records == n
			})
			if got := r.count("u0", "per-year", m); got > n*event.One {
				t.Errorf("round %d: %v are counted", round, got)
			}
			if err := c.EndTransaction(t.Context(), commit); err != nil {
				t.Fatal(err)
			}
			eventually(t, "those of the committed one are counted", func() bool { return r.count("u0", "per-year", m) == n*event.One })
			r.inStep(m)
		}
	})
}

// Every instance shows every partition, also those that others own, and those without an owner.
func TestEveryPartitionHasALag(t *testing.T) {
	onKafka(t, func(t *testing.T, r *rig) {
		set := compile(t, byIPAndUID)
		ms := r.two(set)
		l := r.load()
		began := time.Now().Truncate(time.Millisecond)
		l.emit(100)
		l.counted(ms...)
		for _, m := range ms {
			r.inStep(m)
		}
		if n, _ := ms[0].sample(t, "tallygate_last_checkpoint_timestamp_seconds"); time.UnixMilli(int64(math.Round(n * 1000))).Before(began) {
			t.Errorf("the last checkpoint was at %v", n)
		}
		ms[1].end(t)
		alone := ms[0]
		r.ready(alone)
		l.emit(50)
		l.counted(alone)
		r.inStep(alone)
	})
}

// An instance that owns nothing shows that no partition is counted.
func TestUnownedPartitionsHaveALag(t *testing.T) {
	r := embedded(t)
	set := compile(t, byIPAndUID)
	m, l := r.counting(set, 100)
	r.inStep(m)
	m.end(t)
	l.emit(70)
	// Its session never begins: the group admits no member.
	log := &testrun.Output{}
	bad := r.start(set, func(c *Config) {
		c.Kafka = func(s *sarama.Config) { s.Consumer.Group.Session.Timeout = 24 * time.Hour }
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	eventually(t, "what waits is told", func() bool {
		n, s, ok := bad.lag(t)
		return ok && n >= 70 && s > 1
	})
	eventually(t, "the log tells why", func() bool { return log.Has("cannot join the group yet") })
	if log.Has("session ended") {
		t.Error("the log tells of the end of a session that never began")
	}
}

// A question that is under way when the aggregator is told to stop ends before its connections are
// closed: a connection that sarama opens later would stay. Kafka may be away, so it does not wait for long.
func TestAStopWaitsForQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for takes, want := range map[time.Duration]time.Duration{0: 0, 300 * time.Millisecond: 300 * time.Millisecond, time.Hour: askedWithin} {
			q, began := &questions{}, time.Now()
			q.start(func() { time.Sleep(takes) })
			if q.await(); time.Since(began) != want {
				t.Errorf("a question of %v: it waits for %v, want %v", takes, time.Since(began), want)
			}
			time.Sleep(2 * time.Hour)
		}
	})
}
