package blocklist

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// most is how large a test is that is n in size: a tenth of that, unless it runs on a real Redis that was started for it. In
// miniredis each script takes a thousand times as long.
func most(t *testing.T, n int) int {
	if os.Getenv("TALLYGATE_TEST_REDIS") == "" || strings.HasSuffix(t.Name(), "/miniredis") {
		return n / 10
	}
	return n
}

// onEachRedis runs a test on miniredis and on a real Redis.
func onEachRedis(t *testing.T, test func(t *testing.T, client redis.UniversalClient)) {
	t.Run("miniredis", func(t *testing.T) {
		server := miniredis.RunT(t)
		test(t, dial(t, server.Addr()))
	})
	t.Run("redis", func(t *testing.T) { test(t, dial(t, realRedis(t))) })
}

func dial(t testing.TB, addr string) redis.UniversalClient {
	client := redis.NewClient(&redis.Options{Addr: addr, MaintNotificationsConfig: noNotices})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// realRedis returns the address of an empty Redis that runs as long as the test: tests flush it, and change its settings, so it is not
// that of TALLYGATE_TEST_REDIS, which other packages use at the same time.
func realRedis(t testing.TB) string {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("TALLYGATE_TEST_REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip("redis-server is not installed")
	}
	addr := freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(binary, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	client := dial(t, addr)
	eventually(t, "redis-server answers", func() bool { return client.Ping(context.Background()).Err() == nil })
	return addr
}

func freeAddr(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute it is still not so that %s", what)
		}
	}
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// broker is a Kafka with a verdict topic, and the owner who writes it.
type broker struct {
	t      testing.TB
	addrs  []string
	client *kgo.Client
	ends   map[int32]int64 // of the partitions
}

const testTopic = "tallygate.verdicts"

func newBroker(t testing.TB, partitions int32) *broker {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, testTopic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &broker{t: t, addrs: cluster.ListenAddrs(), client: client, ends: map[int32]int64{}}
}

// write appends records to a partition and returns them as the owner would offer them.
func (b *broker) write(partition int32, records ...Record) (first, next int64, offered []Record) {
	b.t.Helper()
	batch := make([]*kgo.Record, len(records))
	for i, r := range records {
		batch[i] = &kgo.Record{Topic: testTopic, Partition: partition, Key: r.Key, Value: r.Value}
	}
	if err := b.client.ProduceSync(context.Background(), batch...).FirstErr(); err != nil {
		b.t.Fatal(err)
	}
	for i, r := range records {
		r.Offset = batch[i].Offset
		if !verdict.OwnRecord(r.Key) {
			offered = append(offered, r)
		}
	}
	b.ends[partition] = batch[len(batch)-1].Offset + 1
	return batch[0].Offset, b.ends[partition], offered
}

// publisher starts a Publisher with quick settings; the returned function stops it.
func (b *broker) publisher(client redis.UniversalClient, change func(*PublisherConfig)) (*Publisher, func()) {
	b.t.Helper()
	cfg := PublisherConfig{
		Redis: client, Kafka: b.addrs, Partitions: 1, Heartbeat: 50 * time.Millisecond, Logger: quiet(),
		Transport: &kafka.Transport{ClientID: b.t.Name()},
	}
	if change != nil {
		change(&cfg)
	}
	p, err := NewPublisher(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return p, start(b.t, p.Run)
}

// start runs something until the returned function, or the end of the test, stops it.
func start(t testing.TB, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func startFeed(t testing.TB, client redis.UniversalClient, sink Sink, change func(*FeedConfig)) (*Feed, func()) {
	t.Helper()
	cfg := FeedConfig{Redis: client, Heartbeat: 50 * time.Millisecond, Block: 50 * time.Millisecond, Jitter: 10 * time.Millisecond, Logger: quiet()}
	if change != nil {
		change(&cfg)
	}
	f, err := NewFeed(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f, start(t, func(ctx context.Context) error { return f.Run(ctx, sink) })
}

// memory is a Sink that keeps what an enforcer would: blocks, by record key.
type memory struct {
	mu       sync.Mutex
	held     map[string]verdict.Verdict
	shards   map[string]int
	applied  map[int]event.Micros
	replaced int
	dropped  []string // what a Replace took away
}

func newMemory() *memory {
	return &memory{held: map[string]verdict.Verdict{}, shards: map[string]int{}, applied: map[int]event.Micros{}}
}

func (m *memory) Replace(shard int, all []verdict.Verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replaced++
	before := maps.Clone(m.held)
	maps.DeleteFunc(m.held, func(key string, _ verdict.Verdict) bool { return m.shards[key] == shard })
	m.put(shard, all)
	for key := range before {
		if _, ok := m.held[key]; !ok && m.shards[key] == shard {
			m.dropped = append(m.dropped, key)
		}
	}
}

func (m *memory) Apply(shard int, changes []verdict.Verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(shard, changes)
}

func (m *memory) put(shard int, changes []verdict.Verdict) {
	for _, v := range changes {
		key := string(verdict.AppendRecordKey(nil, &v))
		if held, ok := m.held[key]; ok && held.Seq > v.Seq {
			continue
		}
		m.shards[key] = shard
		if m.held[key] = v; v.State == verdict.Clear {
			delete(m.held, key)
		}
	}
}

func (m *memory) Remove(_ int, key []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.held, string(key))
}

func (m *memory) Heartbeat(shard int, applied event.Micros) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied[shard] = applied
}

func (m *memory) text() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return text(m.held)
}

func (m *memory) has(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.held[key]
	return ok
}

func (m *memory) appliedUpTo(shard int) event.Micros {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.applied[shard]
}

func text(held map[string]verdict.Verdict) []string {
	lines := make([]string, 0, len(held))
	for key, v := range held {
		lines = append(lines, fmt.Sprintf("%s seq %d until %d", key, v.Seq, v.Until))
	}
	slices.SortFunc(lines, cmp.Compare[string])
	return lines
}

// block is a verdict that blocks uid from now on for a while.
func block(uid string, seq int64, d time.Duration) verdict.Verdict {
	now := event.FromTime(time.Now())
	return verdict.Verdict{
		Rule: "r", Key: []event.Dim{{Name: "uid", Value: uid}}, Action: verdict.ActBlock, APIs: []string{"*"},
		Count: 2 * event.One, Limit: event.One, Since: now - event.Second, Until: now + event.FromDuration(d), Seq: seq,
	}
}

func clearing(uid string, seq int64) verdict.Verdict {
	v := block(uid, seq, 0)
	v.State, v.Since = verdict.Clear, v.Until
	return v
}

func record(v verdict.Verdict) Record {
	return Record{Key: verdict.AppendRecordKey(nil, &v), Value: verdict.AppendJSON(nil, &v)}
}

func tombstone(v verdict.Verdict) Record { return Record{Key: verdict.AppendRecordKey(nil, &v)} }

// fence is one of the owners' own records.
func fence() Record { return Record{Key: []byte("\x00fence"), Value: []byte("x")} }

// lines is a log that a test reads.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) has(text string) bool { return l.count(text) > 0 }

func (l *lines) count(text string) int { return strings.Count(l.String(), text) }
