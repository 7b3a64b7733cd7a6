package servers

import (
	"errors"
	"net"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"
)

func TestNamesAreUniqueAndFitEverywhere(t *testing.T) {
	legal := regexp.MustCompile(`^[a-z0-9-]{10,60}$`)
	a, b := Name(t), Name(t)
	if a == b {
		t.Errorf("two names of one test are equal: %s", a)
	}
	t.Run("Ünder_scores/and "+strings.Repeat("length", 20), func(t *testing.T) {
		if name := Name(t); !legal.MatchString(name) {
			t.Errorf("%q is no name for a topic, a group and a key", name)
		}
	})
}

// A test without a server is skipped, but not where servers are required.
func TestAbsentServers(t *testing.T) {
	t.Setenv("TALLYGATE_TEST_KAFKA", "")
	for require, want := range map[string]string{"": "skip", "0": "skip", "1": "fatal"} {
		t.Setenv("TALLYGATE_TEST_REQUIRE", require)
		spy := &spy{TB: t}
		done := make(chan struct{})
		go func() { // Skip and Fatal end their goroutine
			defer close(done)
			Kafka(spy)
		}()
		<-done
		if spy.end != want {
			t.Errorf("with TALLYGATE_TEST_REQUIRE=%q: %s, want %s", require, spy.end, want)
		}
	}
}

func TestKafkaOfOnesOwn(t *testing.T) {
	k := StartKafka(t, map[string]string{"num.partitions": "3", "message.max.bytes": "5000"})
	addr, topic := k.Addr(), Name(t)
	create(t, addr, topic)
	write(t, addr, topic, "before", nil)
	write(t, addr, topic, strings.Repeat("too large ", 1000), kafka.MessageSizeTooLarge)

	k.Kill()
	if c, err := net.Dial("tcp", addr); err == nil {
		_ = c.Close()
		t.Fatal("a killed broker answers")
	}
	k.Start()
	if k.Addr() != addr {
		t.Fatalf("the broker moved from %s to %s", addr, k.Addr())
	}
	write(t, addr, topic, "after", nil)

	conn, err := kafka.DialLeader(t.Context(), "tcp", addr, topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if last, err := conn.ReadLastOffset(); err != nil || last != 2 {
		t.Errorf("after the kill the topic ends at %d (%v), want 2", last, err)
	}
	k.Stop()
}

func TestRedisOfOnesOwn(t *testing.T) {
	r := StartRedis(t, "--maxmemory", "10mb")
	rdb := redis.NewClient(&redis.Options{Addr: r.Addr(), MaxRetries: -1})
	defer func() { _ = rdb.Close() }()
	ctx := t.Context()
	if got := rdb.ConfigGet(ctx, "maxmemory").Val()["maxmemory"]; got != "10485760" {
		t.Errorf("maxmemory is %s", got)
	}
	rdb.Set(ctx, "k", "v", 0)
	r.Kill()
	if err := rdb.Ping(ctx).Err(); err == nil {
		t.Error("a killed Redis answers")
	}
	r.Start()
	if n, err := rdb.Exists(ctx, "k").Result(); err != nil || n != 0 {
		t.Errorf("after the kill there are %d keys (%v)", n, err)
	}
	r.Stop()
}

func TestTopicsAreDropped(t *testing.T) {
	brokers := Kafka(t)
	mine, others := Name(t), Name(t)
	create(t, brokers[0], others)
	DropTopics(t, brokers, others)
	t.Run("test", func(t *testing.T) {
		DropTopics(t, brokers, mine)
		create(t, brokers[0], mine+".a")
		create(t, brokers[0], mine+".b")
	})
	conn, err := kafka.Dial("tcp", brokers[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		partitions, err := conn.ReadPartitions()
		if err != nil {
			t.Fatal(err)
		}
		left := map[string]int{}
		for _, p := range partitions {
			if strings.HasPrefix(p.Topic, mine) || strings.HasPrefix(p.Topic, others) {
				left[p.Topic]++
			}
		}
		if len(left) == 1 && left[others] == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("topics left: %v", left)
		}
	}
}

func create(t *testing.T, addr, topic string) {
	t.Helper()
	conn, err := kafka.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.CreateTopics(kafka.TopicConfig{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}); err != nil {
		t.Fatal(err)
	}
	// The controller has it: the broker lists it a little later.
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		all, err := conn.ReadPartitions()
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(all, func(p kafka.Partition) bool { return p.Topic == topic }) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the broker does not list %s", topic)
		}
	}
}

func write(t *testing.T, addr, topic, value string, want error) {
	t.Helper()
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	w := &kafka.Writer{Addr: kafka.TCP(addr), Topic: topic, RequiredAcks: kafka.RequireAll,
		BatchTimeout: time.Millisecond, MaxAttempts: 50, Transport: transport}
	var err error
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err = w.WriteMessages(t.Context(), kafka.Message{Value: []byte(value)})
		if several, ok := errors.AsType[kafka.WriteErrors](err); ok {
			err = several[0]
		}
		// Brokers may not know yet a topic that was just created, and the Writer gives up at once.
		if !errors.Is(err, kafka.UnknownTopicOrPartition) || time.Now().After(end) {
			break
		}
	}
	if !errors.Is(err, want) {
		t.Fatalf("write %.20q: %v, want %v", value, err, want)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// spy notes how a test helper ended, without ending the test.
type spy struct {
	testing.TB
	end string
}

func (s *spy) Skip(...any)  { s.end = "skip"; runtime.Goexit() }
func (s *spy) Fatal(...any) { s.end = "fatal"; runtime.Goexit() }
