package replay

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/internal/tools/engine"
	"github.com/tallygate/tallygate/internal/tools/engine/enginetest"
	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/verdict"
)

// What an aggregator made of a topic, a replay of it makes too: the last verdict of every rule
// and user.
func TestReplayEqualsLive(t *testing.T) {
	t.Run("the last verdict of every rule and key is the same live and in replay, and so are the counts", liveAndReplayed)
}

func liveAndReplayed(t *testing.T) {
	servers.EachKafka(t, replayEqualsLive)
}

func replayEqualsLive(t *testing.T, brokers []string) {
	prefix := servers.Name(t)
	servers.DropTopics(t, brokers, prefix)
	agg, err := aggregate.New(aggregate.Config{
		Brokers: brokers, Rules: enginetest.Set(t), Prefix: prefix, Partitions: 3,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- agg.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	testrun.Eventually(t, "the aggregator is ready", func() bool { return agg.Ready() == nil })

	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	w := &kafka.Writer{
		Addr: kafka.TCP(brokers...), Topic: prefix + ".events", Transport: transport, RequiredAcks: kafka.RequireAll,
		Balancer: kafka.Murmur2Balancer{}, BatchTimeout: time.Millisecond,
	}
	defer w.Close()
	events := enginetest.Traffic(uint64(time.Now().UnixNano()), 3000)
	counts := map[string]int{}
	for len(events) > 0 {
		batch := make([]kafka.Message, min(len(events), 500))
		for i := range batch {
			e := &events[i]
			e.Time = event.NoTime // now
			batch[i] = kafka.Message{Key: []byte(e.UID), Value: event.AppendJSON(nil, e)}
			counts[e.UID]++
		}
		if err := w.WriteMessages(t.Context(), batch...); err != nil {
			t.Fatal(err)
		}
		events = events[len(batch):]
	}
	testrun.Eventually(t, "all is counted", func() bool { return countedLive(agg, counts) })

	live := verdicts(t, brokers, prefix+".verdicts")
	played, engine := replayed(t, brokers, prefix+".events")
	if len(live) < 10 {
		t.Fatalf("only %d verdicts: the traffic is too thin to show anything", len(live))
	}
	same := cmp.Options{cmpopts.IgnoreFields(verdict.Verdict{}, "Seq"), cmpopts.EquateEmpty()}
	if diff := cmp.Diff(live, played, same); diff != "" {
		t.Errorf("last verdicts (- live, + replayed)\n%s", diff)
	}
	now := event.FromTime(time.Now())
	for uid := range counts {
		key := []event.Dim{{Name: "uid", Value: uid}}
		stands, err := agg.Explain(key, "", now)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(stands, engine.Explain(key, "", now), same); diff != "" {
			t.Errorf("where %s stands (- live, + replayed)\n%s", uid, diff)
		}
	}
}

// countedLive asks for each user's count under the rule that counts everything.
func countedLive(agg *aggregate.Aggregator, counts map[string]int) bool {
	for uid, n := range counts {
		list, err := agg.Explain([]event.Dim{{Name: "uid", Value: uid}}, "", event.FromTime(time.Now()))
		if err != nil {
			return false
		}
		for _, e := range list {
			if e.Rule == "many" && e.Count != event.Decimal(n)*event.One {
				return false
			}
		}
	}
	return true
}

// verdicts reads the last verdict of each user's record key, until the topic has told of
// nothing new for a while.
func verdicts(t *testing.T, brokers []string, topic string) map[string]verdict.Verdict {
	t.Helper()
	last := map[string]verdict.Verdict{}
	for quiet := 0; quiet < 3; { // verdicts follow counts within milliseconds
		before := len(last)
		seen := map[string]verdict.Verdict{}
		for p := range 3 {
			readAll(t, brokers, topic, p, func(m kafka.Message) {
				if verdict.OwnRecord(m.Key) {
					return
				}
				v, err := verdict.Parse(m.Value)
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(v.KeyText(), "uid=") {
					seen[v.KeyText()+"|"+v.Rule] = v
				}
			})
		}
		if cmp.Equal(last, seen) && before > 0 {
			quiet++
		} else {
			quiet = 0
		}
		last = seen
	}
	return last
}

func readAll(t *testing.T, brokers []string, topic string, partition int, do func(kafka.Message)) {
	t.Helper()
	client := &kafka.Client{Addr: kafka.TCP(brokers...), Timeout: 30 * time.Second, Transport: &kafka.Transport{}}
	defer client.Transport.(*kafka.Transport).CloseIdleConnections()
	res, err := client.ListOffsets(t.Context(), &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {kafka.FirstOffsetOf(partition), kafka.LastOffsetOf(partition)}}})
	if err != nil {
		t.Fatal(err)
	}
	o := res.Topics[topic][0]
	if o.FirstOffset >= o.LastOffset {
		return
	}
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: brokers, Topic: topic, Partition: partition, MaxWait: 100 * time.Millisecond})
	defer r.Close()
	for r.Offset() < o.LastOffset {
		m, err := r.ReadMessage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		do(m)
		if m.Offset >= o.LastOffset-1 {
			return
		}
	}
}

// replayed is the last verdict of each user's record key by a replay of the topic, and what counted
// it.
func replayed(t *testing.T, brokers []string, topic string) (map[string]verdict.Verdict, *engine.Engine) {
	t.Helper()
	src, err := Topic(t.Context(), &kafkaconn.Kafka{Brokers: brokers}, topic)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	e := engine.New(enginetest.Set(t))
	var out engine.Outcome
	for {
		rec, err := src.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		e.Apply(&rec.Event, rec.Broker, rec.Cause, &out)
	}
	last := map[string]verdict.Verdict{}
	for h := range e.Held() {
		if strings.HasPrefix(h.Key, "uid=") {
			last[h.Key+"|"+h.Rule] = h.Verdict
		}
	}
	return last, e
}
