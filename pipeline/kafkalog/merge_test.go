package kafkalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// merged reads a span of time, and checks that Done comes to Total.
func merged(t *testing.T, f *Fetcher, topic string, from, to time.Time) (values []string) {
	t.Helper()
	m := merge(t, f, topic, from, to)
	for {
		_, rec, err := m.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, string(rec.Value))
	}
	if m.Done() != m.Total() {
		t.Errorf("%d of %d offsets are done at the end", m.Done(), m.Total())
	}
	return values
}

func merge(t *testing.T, f *Fetcher, topic string, from, to time.Time) *Merge {
	t.Helper()
	m, err := f.Merge(t.Context(), topic, from, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// at is a record with a time.
func at(partition int32, when time.Time, value string) *kgo.Record {
	return &kgo.Record{Partition: partition, Timestamp: when, Value: []byte(value)}
}

func produceAt(t *testing.T, c *kgo.Client, topic string, records ...*kgo.Record) {
	t.Helper()
	for _, r := range records {
		r.Topic = topic
	}
	if err := c.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// A span of time is read from all partitions in the order of the records' times, and nothing
// outside of it.
func TestASpanOfTime(t *testing.T) {
	everyKafka(t, func(t *testing.T, brokers []string) {
		c, f := client(t, brokers), run(t, Config{Brokers: brokers})
		topic := newTopic(t, c, 3, nil)
		start := time.Now().Add(-time.Hour).Truncate(time.Second)
		second := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
		for i, partition := range []int32{0, 2, 0, 2, 2, 0} { // nothing in 1
			produceAt(t, c, topic, at(partition, second(10*i), fmt.Sprint(i)))
		}
		for _, test := range []struct {
			name     string
			from, to time.Time
			want     string
		}{
			{"all", time.Time{}, time.Time{}, "0 1 2 3 4 5"},
			{"from a record on", second(20), time.Time{}, "2 3 4 5"},
			{"from between two on", second(21), time.Time{}, "3 4 5"},
			{"up to before a record", time.Time{}, second(30), "0 1 2"},
			{"up to between two", second(5), second(41), "1 2 3 4"},
			{"between two", second(11), second(19), ""},
			{"before the first", second(-10), second(0), ""},
			{"behind the last", second(51), time.Time{}, ""},
			{"to before from", second(30), second(20), ""},
		} {
			if got := strings.Join(merged(t, f, topic, test.from, test.to), " "); got != test.want {
				t.Errorf("%s: %q, want %q", test.name, got, test.want)
			}
		}
	})
}

// What comes later is not read: it ends, however busy the topic is.
func TestTheEndIsWhereItWas(t *testing.T) {
	everyKafka(t, func(t *testing.T, brokers []string) {
		c, f := client(t, brokers), run(t, Config{Brokers: brokers})
		topic := newTopic(t, c, 1, nil)
		produce(t, c, topic, 0, "before")
		m := merge(t, f, topic, time.Time{}, time.Time{})
		produce(t, c, topic, 0, "after")
		if _, rec, err := m.Next(t.Context()); err != nil || string(rec.Value) != "before" {
			t.Fatalf("%v, %v", rec, err)
		}
		for range 2 {
			if _, rec, err := m.Next(t.Context()); !errors.Is(err, io.EOF) {
				t.Errorf("behind the end: %v, %v", rec, err)
			}
		}
	})
}

// More than one fetch brings, of several partitions: all of it once, and in order.
func TestManyFetches(t *testing.T) {
	everyKafka(t, func(t *testing.T, brokers []string) {
		c, f := client(t, brokers), run(t, Config{Brokers: brokers, PartitionBytes: 1 << 20})
		topic := newTopic(t, c, 2, nil)
		const n = 400
		start := time.Now().Add(-time.Hour).Truncate(time.Second)
		filling := strings.Repeat("x", 20_000)
		var records []*kgo.Record
		var want []string
		for i := range n {
			want = append(want, fmt.Sprintf("%03d%s", i, filling))
			records = append(records, at(int32(i%2), start.Add(time.Duration(i)*time.Millisecond), want[i]))
		}
		produceAt(t, c, topic, records...)
		if got := merged(t, f, topic, time.Time{}, time.Time{}); !slices.Equal(got, want) {
			t.Errorf("%d records, want %d in their order", len(got), n)
		}
	})
}

// A record that was read stays as it is when the next one is: its key and value may be kept.
func TestMergedValuesStay(t *testing.T) {
	everyKafka(t, func(t *testing.T, brokers []string) {
		for name, codec := range map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression()} {
			c, f := client(t, brokers, kgo.ProducerBatchCompression(codec)), run(t, Config{Brokers: brokers})
			topic := servers.Name(t)
			createTopic(t, c, topic+name, 1, nil)
			var want []string
			for range 20 {
				batch := values(len(want), 50)
				produce(t, c, topic+name, 0, batch...)
				want = append(want, batch...)
			}
			var kept [][]byte
			for m := merge(t, f, topic+name, time.Time{}, time.Time{}); ; {
				_, rec, err := m.Next(t.Context())
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				kept = append(kept, rec.Value)
			}
			if got := strings.Join(want, " "); got != string(bytes.Join(kept, []byte(" "))) {
				t.Errorf("%s: the records have changed", name)
			}
		}
	})
}

// The context ends what waits, and Close may follow. Nothing is read after it.
func TestClosedInBetween(t *testing.T) {
	everyKafka(t, func(t *testing.T, brokers []string) {
		c, f := client(t, brokers), run(t, Config{Brokers: brokers})
		topic := newTopic(t, c, 2, nil)
		produceAt(t, c, topic, at(0, time.Time{}, "a"), at(1, time.Time{}, "b"))
		m := merge(t, f, topic, time.Time{}, time.Time{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, rec, err := m.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v", rec, err)
		}
		m.Close()
		if _, rec, err := m.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("after Close: %v, %v", rec, err)
		}
	})
}

// What was deleted meanwhile is passed over, and what is left is read.
func TestMergeGoesOnBehindWhatWasDeleted(t *testing.T) {
	everyKafka(t, func(t *testing.T, brokers []string) {
		c, f := client(t, brokers), run(t, Config{Brokers: brokers})
		topic := newTopic(t, c, 1, nil)
		produce(t, c, topic, 0, "a", "b", "c", "d")
		m := merge(t, f, topic, time.Time{}, time.Time{})
		deleteBelow(t, c, topic, 2)
		if _, rec, err := m.Next(t.Context()); err != nil || string(rec.Value) != "c" {
			t.Errorf("%v, %v", rec, err)
		}
		if m.Done() != 3 || m.Total() != 4 {
			t.Errorf("%d of %d", m.Done(), m.Total())
		}
	})
}

// Records that nobody can read are said once, and the rest is read.
func TestMergePassesOverWhatCannotBeRead(t *testing.T) {
	everyKafka(t, func(t *testing.T, brokers []string) {
		c, f := client(t, brokers, kgo.ProducerBatchCompression(kgo.ZstdCompression())), run(t, Config{Brokers: brokers, MaxBatch: 100_000})
		topic := newTopic(t, c, 1, nil)
		produce(t, c, topic, 0, "before")
		produce(t, c, topic, 0, strings.Repeat("x", 200_000)) // it decompresses to more
		produce(t, c, topic, 0, "behind")
		m := merge(t, f, topic, time.Time{}, time.Time{})
		var got []string
		var bad []*Unreadable
		for {
			_, rec, err := m.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if u, is := errors.AsType[*Unreadable](err); is {
				bad = append(bad, u)
				if m.Done() != u.Last+1 {
					t.Errorf("%d offsets are done when %d cannot be read", m.Done(), u.Last)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(rec.Value))
		}
		if !slices.Equal(got, []string{"before", "behind"}) || len(bad) != 1 || bad[0].First != 1 || bad[0].Last != 1 || m.Done() != m.Total() {
			t.Errorf("%.100q, and cannot be read: %v", got, bad)
		}
	})
}

func TestNoSuchTopic(t *testing.T) {
	everyKafka(t, func(t *testing.T, brokers []string) {
		f := run(t, Config{Brokers: brokers})
		if _, err := f.Merge(t.Context(), "no-such-topic", time.Time{}, time.Time{}); err == nil || !strings.Contains(err.Error(), "no-such-topic") {
			t.Errorf("a topic that is not there: %v", err)
		}
	})
}

// A compacted topic has gaps, also at the ends of batches, and batches of which nothing is left:
// Kafka keeps the last one of each idempotent producer, empty. The latest record of each key is
// there all the same.
func TestACompactedTopic(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a broker")
	}
	broker := servers.StartKafka(t, map[string]string{"log.cleaner.backoff.ms": "100"})
	f := run(t, Config{Brokers: []string{broker.Addr()}})
	topic := newTopic(t, client(t, []string{broker.Addr()}), 1, map[string]string{
		"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.bytes": "1048576", "max.compaction.lag.ms": "100", "segment.ms": "100",
	})
	filling := strings.Repeat("x", 2000)
	const keys, rounds = 7, 600
	want := map[string]string{}
	var producer *kgo.Client
	for i := range rounds {
		if i%20 == 0 {
			if producer != nil {
				producer.Close()
			}
			var err error
			if producer, err = kgo.NewClient(kgo.SeedBrokers(broker.Addr()), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression())); err != nil {
				t.Fatal(err)
			}
		}
		var records []*kgo.Record
		for k := range keys {
			if (i+k)%3 == 0 {
				continue
			}
			key, value := fmt.Sprint(k), fmt.Sprintf("%d of %d %s", i, k, filling)
			want[key] = value
			records = append(records, &kgo.Record{Key: []byte(key), Value: []byte(value)})
		}
		if err := producer.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	producer.Close()
	var read int
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		got := map[string]string{}
		read = 0
		m := merge(t, f, topic, time.Time{}, time.Time{})
		for {
			_, rec, err := m.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			read++
			got[string(rec.Key)] = string(rec.Value)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("the latest records (- expected, + got)\n%s", diff)
		}
		if int64(read) < m.Total()/2 {
			return // it was compacted, and read to its end
		}
		if time.Now().After(deadline) {
			t.Fatalf("Kafka has compacted nothing: %d records at %d offsets", read, m.Total())
		}
	}
}
