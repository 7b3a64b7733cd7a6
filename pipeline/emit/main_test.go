package emit_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/emit"
)

const topic = "tallygate.events"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is a topic on some broker, empty at first.
type place struct {
	brokers []string
	topic   string
}

// fake starts an in-process cluster with the default topic.
func fake(t testing.TB, partitions int32, opts ...kfake.Opt) (*kfake.Cluster, place) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(partitions, topic)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, place{c.ListenAddrs(), topic}
}

// everywhere runs the test on the fake and, where TALLYGATE_TEST_KAFKA names one, on a real broker.
func everywhere(t *testing.T, partitions int, test func(*testing.T, place)) {
	t.Run("fake", func(t *testing.T) {
		_, p := fake(t, int32(partitions))
		test(t, p)
	})
	t.Run("kafka", func(t *testing.T) {
		real := os.Getenv("TALLYGATE_TEST_KAFKA")
		if real == "" {
			t.Skip("TALLYGATE_TEST_KAFKA is not set")
		}
		p := place{strings.Split(real, ","), fmt.Sprintf("emit-test-%d", time.Now().UnixNano())}
		transport := &kafka.Transport{}
		defer transport.CloseIdleConnections()
		client := kafka.Client{Addr: kafka.TCP(p.brokers...), Transport: transport}
		res, err := client.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{
			Topics: []kafka.TopicConfig{{Topic: p.topic, NumPartitions: partitions, ReplicationFactor: 1}},
		})
		if err != nil || res.Errors[p.topic] != nil {
			t.Fatal(err, res)
		}
		test(t, p)
	})
}

// start makes an Emitter that the test need not close.
func start(t testing.TB, p place, change func(*emit.Config)) *emit.Emitter {
	t.Helper()
	cfg := emit.Config{Brokers: p.brokers, Topic: p.topic}
	if change != nil {
		change(&cfg)
	}
	e, err := emit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = e.Close(ctx)
	})
	return e
}

// closeNow drains the Emitter and fails the test if that takes too long.
func closeNow(t testing.TB, e *emit.Emitter) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// logged is one record as the broker has it.
type logged struct {
	key, value string
	instance   string
	sequence   uint64
	trace      string
}

// readLog returns all records of the place, by partition.
func readLog(t testing.TB, p place) map[int32][]logged {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ends := endOffsets(t, ctx, p)
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.brokers...), kgo.ConsumeTopics(p.topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	log := make(map[int32][]logged)
	total, want := 0, int64(0)
	for _, end := range ends {
		want += end
	}
	for int64(total) < want {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("read the log: %v (%d of %d)", err, total, want)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			total++
			log[r.Partition] = append(log[r.Partition], parse(t, r))
		})
	}
	return log
}

func endOffsets(t testing.TB, ctx context.Context, p place) map[int]int64 {
	t.Helper()
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := kafka.Client{Addr: kafka.TCP(p.brokers...), Transport: transport}
	meta, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{p.topic}})
	if err != nil {
		t.Fatal(err)
	}
	var asked []kafka.OffsetRequest
	for _, part := range meta.Topics[0].Partitions {
		asked = append(asked, kafka.LastOffsetOf(part.ID))
	}
	res, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{p.topic: asked}})
	if err != nil {
		t.Fatal(err)
	}
	ends := make(map[int]int64)
	for _, part := range res.Topics[p.topic] {
		ends[part.Partition] = part.LastOffset
	}
	return ends
}

func parse(t testing.TB, r *kgo.Record) logged {
	t.Helper()
	l := logged{key: string(r.Key), value: string(r.Value)}
	to := int32(-1)
	for _, h := range r.Headers {
		switch h.Key {
		case event.HeaderInstance:
			l.instance = string(h.Value)
		case event.HeaderSequence:
			seq, ok := event.ParseSequence(h.Value)
			if !ok {
				t.Fatalf("sequence %x", h.Value)
			}
			l.sequence = seq
		case event.HeaderPartition:
			to, _ = event.ParsePartition(h.Value)
		case event.HeaderTrace:
			l.trace = string(h.Value)
		}
	}
	if to != r.Partition {
		t.Fatalf("a record in partition %d says that it was sent to %d", r.Partition, to)
	}
	if l.instance == "" || l.sequence == 0 {
		t.Fatalf("a record without its headers: %+v", r.Headers)
	}
	return l
}

// consume reads the log as a consumer does: what is not above the highest sequence of its
// instance is a repeat. It fails the test if anything else than repeats is out of order or
// missing, and returns the events' JSON and how many records were repeats.
func consume(t testing.TB, log map[int32][]logged) (events []string, repeats int) {
	t.Helper()
	for partition, records := range log {
		last := make(map[string]uint64)
		for _, r := range records {
			if r.sequence <= last[r.instance] {
				repeats++
				continue
			}
			if r.sequence != last[r.instance]+1 {
				t.Fatalf("partition %d: sequence %d follows %d", partition, r.sequence, last[r.instance])
			}
			last[r.instance] = r.sequence
			events = append(events, r.value)
		}
	}
	return events, repeats
}

// numbered is an event that the tests can tell from any other.
func numbered(uid string, n int) event.Event {
	return event.Event{ID: fmt.Sprintf("n%d", n), UID: uid, API: "order.create"}
}

// wantNumbered fails the test unless the events n0 to n(count-1) are there, once each.
func wantNumbered(t testing.TB, events []string, count int) {
	t.Helper()
	seen := make(map[string]int)
	for _, e := range events {
		_, rest, _ := strings.Cut(e, `"id":"`)
		id, _, _ := strings.Cut(rest, `"`)
		seen[id]++
	}
	for n := range count {
		if got := seen[fmt.Sprintf("n%d", n)]; got != 1 {
			t.Fatalf("event n%d is there %d times (%d events in all, want %d)", n, got, len(events), count)
		}
	}
	if len(events) != count {
		t.Fatalf("%d events, want %d", len(events), count)
	}
}
