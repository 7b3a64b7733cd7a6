package aggregate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/apitest"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner/memlog"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// TestMain looks for leaks for a while: after Kafka stops, sarama gives up its last request only
// after its retries.
func TestMain(m *testing.M) {
	status := m.Run()
	meter := goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")
	for end := time.Now().Add(30 * time.Second); status == 0; {
		err := goleak.Find(meter)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	os.Exit(status)
}

// onKafka runs a test on an embedded Kafka. Where real servers are required, the fast suite has run it.
func onKafka(t *testing.T, test func(t *testing.T, r *rig)) {
	test(t, embedded(t))
}

// embedded is a rig on an embedded Kafka.
func embedded(t *testing.T) *rig {
	t.Parallel() // they wait more than they work
	servers.Embedded(t)
	return newRig(t, servers.EmbeddedKafka(t))
}

// onKafkaShows is onKafka for a test that proves a sentence of the rule language.
func onKafkaShows(t *testing.T, sentence string, test func(t *testing.T, r *rig)) {
	t.Parallel()
	t.Run(sentence, func(t *testing.T) { onKafka(t, test) })
}

// onRealKafka is onKafka for a test of what the embedded Kafka does not do as a real one does.
func onRealKafka(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Parallel()
	test(t, newRig(t, servers.Kafka(t)))
}

// everyKafka is onKafka for the few tests that show on a real one, too, that the embedded Kafka does as Kafka does:
// how it orders, fences, isolates, rebalances, and says that a topic is another one.
func everyKafka(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Parallel()
	servers.EachKafka(t, func(t *testing.T, brokers []string) { test(t, newRig(t, brokers)) })
}

// rig is a Kafka, a prefix of the test's own, and the means to inspect both.
type rig struct {
	t       *testing.T
	brokers []string
	names   topics.Names
	client  sarama.Client
	fetch   sarama.Client // of its own: a waiting fetch blocks its connection
	send    sarama.SyncProducer

	mu      sync.Mutex
	checked map[string]bool // the records that described has looked at

	memory  *memlog.Log // in place of Kafka: see inMemory
	network *pipes
	share   []int32 // the partitions of the members to come; nil: all
}

const rigPartitions = 4

// patient is a session timeout for members that nobody kills: a busy machine may keep heartbeats back for longer than
// the rig's six seconds, and the broker then begins a new session.
const patient = time.Minute

func newRig(t *testing.T, brokers []string) *rig {
	r := &rig{t: t, brokers: brokers, names: topics.NamesOf(servers.Name(t)), checked: map[string]bool{}}
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Producer.Return.Successes = true
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	cfg.Producer.MaxMessageBytes = 4 << 20
	cfg.Consumer.MaxWaitTime = 20 * time.Millisecond
	cfg.Metadata.AllowAutoTopicCreation = false
	var err error
	if r.client, err = sarama.NewClient(brokers, cfg); err != nil {
		t.Fatal(err)
	}
	if r.fetch, err = sarama.NewClient(brokers, cfg); err != nil {
		t.Fatal(err)
	}
	if r.send, err = sarama.NewSyncProducerFromClient(r.client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.send.Close()
		r.client.Close()
		r.fetch.Close()
	})
	return r
}

func compile(t *testing.T, body string) *rules.Set {
	t.Helper()
	set, err := rules.Compile("test.yaml", []byte("apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: test}\nspec:\n"+body))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// member is a running aggregator.
type member struct {
	*Aggregator
	stop context.CancelFunc
	done chan error

	share []int32 // the partitions of one in memory
}

func (r *rig) start(set *rules.Set, change ...func(*Config)) *member {
	r.t.Helper()
	level := slog.LevelWarn
	if os.Getenv("TALLYGATE_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	cfg := Config{
		Brokers: r.brokers, Rules: set, Prefix: r.names.Group, Partitions: rigPartitions,
		SessionTimeout: 6 * time.Second, CheckpointEvery: 50 * time.Millisecond, packAfter: time.Nanosecond,
		Registry: prometheus.NewRegistry(),
		Logger:   slog.New(slog.NewTextHandler(r.t.Output(), &slog.HandlerOptions{Level: level})),
	}
	for _, c := range change {
		c(&cfg)
	}
	if r.memory != nil {
		return r.startInMemory(cfg)
	}
	a, err := New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &member{Aggregator: a, stop: stop, done: make(chan error, 1)}
	go func() { m.done <- a.Run(ctx) }()
	r.t.Cleanup(func() { m.end(r.t) })
	return m
}

func (m *member) end(t *testing.T) {
	t.Helper()
	m.stop()
	select {
	case err := <-m.done:
		m.done <- err
		if err != nil && m.fatal() == nil {
			t.Errorf("aggregator: %v", err)
		}
	case <-time.After(30 * time.Second):
		buf := make([]byte, 1<<20)
		t.Fatalf("the aggregator does not stop:\n%s", buf[:runtime.Stack(buf, true)])
	}
}

// two starts two members that share the partitions, and can ask each other.
func (r *rig) two(set *rules.Set) []*member {
	r.t.Helper()
	var ms []*member
	for range 2 {
		var m *member
		mux := http.NewServeMux()
		mux.HandleFunc("/v1/explain", func(w http.ResponseWriter, q *http.Request) { m.ServeExplain(w, q) })
		mux.HandleFunc("/v1/hot-keys", func(w http.ResponseWriter, q *http.Request) { m.ServeHotKeys(w, q) })
		srv := r.serve(apitest.Open(r.t, apidocs.Aggregator).Handler(r.t, mux))
		m = r.half(len(ms), set, func(c *Config) { c.Advertise = srv.Listener.Addr().String() })
		ms = append(ms, m)
	}
	r.shared(ms...)
	return ms
}

// half starts one of two members; in memory, each has half of the partitions.
func (r *rig) half(i int, set *rules.Set, change ...func(*Config)) *member {
	r.t.Helper()
	r.share = [][]int32{{0, 2}, {1, 3}}[i]
	return r.start(set, change...)
}

// shared waits until members share the partitions.
func (r *rig) shared(ms ...*member) {
	r.t.Helper()
	if r.memory != nil {
		meet(ms...)
	}
	r.ready(ms...)
	eventually(r.t, "the two share the partitions", func() bool { return sharing(ms...) })
}

// sharing reports whether members that are ready own equally many partitions.
func sharing(ms ...*member) bool {
	for _, m := range ms {
		m.mu.RLock()
		n := len(m.parts)
		m.mu.RUnlock()
		if n != rigPartitions/len(ms) || m.up() != nil {
			return false
		}
	}
	return true
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testrun.Eventually(t, what, ok)
}

// begin starts a member and waits until it is ready.
func (r *rig) begin(set *rules.Set, change ...func(*Config)) *member {
	r.t.Helper()
	m := r.start(set, change...)
	r.ready(m)
	return m
}

func (r *rig) ready(ms ...*member) {
	r.t.Helper()
	for _, m := range ms {
		eventually(r.t, "the aggregator is ready", func() bool {
			select {
			case err := <-m.done:
				m.done <- err
				r.t.Fatalf("the aggregator ended: %v", err)
			default:
			}
			return m.up() == nil
		})
	}
}

// emit sends events' JSON, each to its uid's partition.
func (r *rig) emit(events ...*event.Event) {
	r.t.Helper()
	msgs := make([]*sarama.ProducerMessage, len(events))
	for i, e := range events {
		msgs[i] = &sarama.ProducerMessage{
			Topic: r.names.Events, Partition: event.Partition([]byte(e.UID), rigPartitions),
			Key: sarama.StringEncoder(e.UID), Value: sarama.ByteEncoder(event.AppendJSON(nil, e)),
		}
	}
	r.sendAll(msgs)
}

// undelivered adds the first record's reason to an error that says only how many failed.
func undelivered(err error) error {
	var each sarama.ProducerErrors
	if errors.As(err, &each) && len(each) > 0 {
		return fmt.Errorf("%w, the first to %s/%d: %w", err, each[0].Msg.Topic, each[0].Msg.Partition, each[0].Err)
	}
	return err
}

func (r *rig) sendAll(msgs []*sarama.ProducerMessage) {
	r.t.Helper()
	if r.memory != nil {
		r.toMemory(msgs)
		return
	}
	for len(msgs) > 0 {
		n := min(len(msgs), 5000)
		if err := r.send.SendMessages(msgs[:n]); err != nil {
			r.t.Fatal(undelivered(err))
		}
		msgs = msgs[n:]
	}
}

func hit(uid, api string) *event.Event {
	return &event.Event{UID: uid, API: api, Cost: event.One, Time: event.NoTime, BrokerTime: event.NoTime}
}

// count asks for a key's count under a rule's limit.
func (r *rig) count(uid, rule string, ms ...*member) event.Decimal {
	r.t.Helper()
	for _, m := range ms {
		list, err := m.Explain([]event.Dim{{Name: "uid", Value: uid}}, "", now())
		if err != nil {
			continue
		}
		for _, e := range list {
			if e.Rule == rule {
				return e.Count
			}
		}
		r.t.Fatalf("no rule %s in %v", rule, list)
	}
	return -1
}

// records reads a partition from its start to its current end.
func (r *rig) records(topic string, partition int32) []*sarama.ConsumerMessage {
	r.t.Helper()
	if r.memory != nil {
		return r.fromMemory(topic, partition)
	}
	oldest, err := r.client.GetOffset(topic, partition, sarama.OffsetOldest)
	if err != nil {
		r.t.Fatal(err)
	}
	end, err := r.client.GetOffset(topic, partition, sarama.OffsetNewest)
	if err != nil {
		r.t.Fatal(err)
	}
	if oldest == end {
		return nil
	}
	c, err := sarama.NewConsumerFromClient(r.fetch)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	pc, err := c.ConsumePartition(topic, partition, oldest)
	if err != nil {
		r.t.Fatal(err)
	}
	defer pc.Close()
	var out []*sarama.ConsumerMessage
	for m := range pc.Messages() {
		out = append(out, m)
		r.described(m)
		if m.Offset >= end-1 {
			break
		}
	}
	return out
}

// described fails the test if what an aggregator wrote for other programs is not as the document of the
// topics has it.
func (r *rig) described(m *sarama.ConsumerMessage) {
	r.t.Helper()
	channel := map[string]string{r.names.Audit: "audit", r.names.DeadLetters: "deadLetters", r.names.Rules: "rules", r.names.Verdicts: "verdicts"}[m.Topic]
	if channel == "" || m.Topic == r.names.Verdicts && len(m.Key) > 0 && m.Key[0] == 0 {
		return
	}
	id := fmt.Sprintf("%s/%d@%d %s", m.Topic, m.Partition, m.Offset, m.Value)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.checked[id] {
		return
	}
	r.checked[id] = true
	headers := map[string][]string{}
	for _, h := range m.Headers {
		headers[string(h.Key)] = append(headers[string(h.Key)], string(h.Value))
	}
	if err := apitest.CheckRecord(channel, m.Key, m.Value, headers); err != nil {
		r.t.Errorf("%s/%d@%d: %q %.500q %q\n%v", m.Topic, m.Partition, m.Offset, m.Key, m.Value, headers, err)
	}
}

// verdicts reads the verdict topic: every verdict, in the order of its partition. Erased keys have
// none.
func (r *rig) verdicts() []verdict.Verdict {
	r.t.Helper()
	var out []verdict.Verdict
	for p := range int32(rigPartitions) {
		records, gone := r.records(r.names.Verdicts, p), map[string]int64{}
		for _, m := range records {
			if len(m.Value) == 0 {
				gone[string(m.Key)] = m.Offset + 1
			}
		}
		for _, m := range records {
			if fenced.IsOwnerRecord(m.Key) || gone[string(m.Key)] > m.Offset {
				continue
			}
			v, err := verdict.Parse(m.Value)
			if err != nil {
				r.t.Fatalf("verdict %s: %v", m.Value, err)
			}
			out = append(out, v)
		}
	}
	return out
}

// header returns a header's value.
func header(m *sarama.ConsumerMessage, name string) string {
	for _, h := range m.Headers {
		if string(h.Key) == name {
			return string(h.Value)
		}
	}
	return ""
}

func uids(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("u%d", i)
	}
	return out
}

// ipOf returns one of many addresses.
func ipOf(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// emitTo sends values unchanged.
func (r *rig) emitTo(topic string, partition int32, values ...string) {
	r.t.Helper()
	var msgs []*sarama.ProducerMessage
	for _, v := range values {
		msgs = append(msgs, &sarama.ProducerMessage{Topic: topic, Partition: partition, Value: sarama.StringEncoder(v)})
	}
	r.sendAll(msgs)
}

// letters counts the dead letters.
func (r *rig) letters() (n int) {
	for p := range int32(rigPartitions) {
		n += len(r.records(r.names.DeadLetters, p))
	}
	return n
}

// forwarded is a record of the loop topic, as the partition from writes it.
func forwarded(from int32, offset int64, e *event.Event) []byte {
	buf := binary.AppendUvarint([]byte{1, 1}, uint64(from)) // version and kind
	buf = binary.AppendUvarint(buf, uint64(offset))
	buf = binary.AppendUvarint(buf, 0) // index in the record
	return event.AppendJSON(binary.AppendVarint(buf, int64(now())), e)
}
