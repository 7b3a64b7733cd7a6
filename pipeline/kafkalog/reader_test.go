package kafkalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// plainRecord holds the fields of a record that are compared.
type plainRecord struct {
	Offset     int64
	Time       time.Time
	Key, Value string
	Null       [2]bool
	Headers    []string
}

// Whatever library wrote a record, and however it compressed it, a reader has what sarama's
// consumer has.
func TestReadsWhatSaramaReads(t *testing.T) {
	everyKafka(t, func(t *testing.T, brokers []string) {
		for _, stamp := range []string{"CreateTime", "LogAppendTime"} {
			t.Run(stamp, func(t *testing.T) {
				c := client(t, brokers)
				topic := newTopic(t, c, int32(len(writers)*5), map[string]string{"message.timestamp.type": stamp})
				for i, w := range writers {
					for codec := range 5 {
						w(t, brokers, topic, 5*i+codec, codec)
					}
				}
				f := run(t, Config{Brokers: brokers})
				for p := range int32(len(writers) * 5) {
					want := saramas(t, brokers, topic, p)
					r := f.Read(topic, [16]byte{}, p, 0)
					var got []plainRecord
					for _, rec := range take(t, r, len(want)) {
						got = append(got, plainOf(rec))
					}
					r.Close()
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("partition %d, sarama's first: %s", p, diff)
					}
				}
			})
		}
	})
}

const written = 40

func body(i int) []byte {
	switch i % 5 {
	case 0:
		return bytes.Repeat([]byte{byte(i)}, 10_000)
	case 1:
		return nil
	default:
		return []byte(strings.Repeat(fmt.Sprintf(`{"n":%d}`, i), i))
	}
}

var writers = []func(t *testing.T, brokers []string, topic string, partition, codec int){
	func(t *testing.T, brokers []string, topic string, partition, codec int) {
		cfg := sarama.NewConfig()
		cfg.Version = sarama.V2_8_0_0
		cfg.Producer.Compression = sarama.CompressionCodec(codec)
		cfg.Producer.Partitioner = sarama.NewManualPartitioner
		cfg.Producer.Return.Successes = true
		p, err := sarama.NewSyncProducer(brokers, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		var msgs []*sarama.ProducerMessage
		for i := range written {
			m := &sarama.ProducerMessage{Topic: topic, Partition: int32(partition), Value: sarama.ByteEncoder(body(i)),
				Headers: []sarama.RecordHeader{{Key: []byte("n"), Value: []byte{byte(i)}}, {Key: []byte("none")}}[:i%3]}
			if i%2 == 0 {
				m.Key = sarama.StringEncoder(fmt.Sprint(i))
			}
			msgs = append(msgs, m)
		}
		if err := p.SendMessages(msgs); err != nil {
			t.Fatal(err)
		}
	},
	func(t *testing.T, brokers []string, topic string, partition, codec int) {
		w := &kafka.Writer{Addr: kafka.TCP(brokers...), Topic: topic, Compression: kafka.Compression(codec), RequiredAcks: kafka.RequireAll,
			Balancer: kafka.BalancerFunc(func(kafka.Message, ...int) int { return partition }), BatchTimeout: 10 * time.Millisecond,
			Transport: &kafka.Transport{}}
		defer w.Transport.(*kafka.Transport).CloseIdleConnections()
		defer w.Close()
		var msgs []kafka.Message
		for i := range written {
			m := kafka.Message{Value: body(i), Headers: []kafka.Header{{Key: "n", Value: []byte{byte(i)}}, {Key: "none"}}[:i%3]}
			if i%2 == 0 {
				m.Key = []byte(fmt.Sprint(i))
			}
			msgs = append(msgs, m)
		}
		if err := w.WriteMessages(t.Context(), msgs...); err != nil {
			t.Fatal(err)
		}
	},
	func(t *testing.T, brokers []string, topic string, partition, codec int) {
		codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
		c := client(t, brokers, kgo.ProducerBatchCompression(codecs[codec]), kgo.ProducerLinger(20*time.Millisecond))
		var records []*kgo.Record
		for i := range written {
			r := &kgo.Record{Topic: topic, Partition: int32(partition), Value: body(i),
				Headers: []kgo.RecordHeader{{Key: "n", Value: []byte{byte(i)}}, {Key: "none"}}[:i%3]}
			if i%2 == 0 {
				r.Key = []byte(fmt.Sprint(i))
			}
			records = append(records, r)
		}
		if err := c.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	},
}

func plainOf(rec Record) plainRecord {
	p := plainRecord{rec.Offset, rec.Time(), string(rec.Key), string(rec.Value), [2]bool{rec.Key == nil, rec.Value == nil}, nil}
	for _, h := range list(rec.Headers) {
		p.Headers = append(p.Headers, h.Key+"="+string(h.Value))
	}
	return p
}

// saramas is a partition as sarama's consumer has it: what is committed.
func saramas(t *testing.T, brokers []string, topic string, partition int32) (out []plainRecord) {
	t.Helper()
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Consumer.IsolationLevel = sarama.ReadCommitted
	cfg.Consumer.MaxWaitTime = 20 * time.Millisecond
	sc, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer sc.Close()
	consumer, err := sarama.NewConsumerFromClient(sc)
	if err != nil {
		t.Fatal(err)
	}
	pc, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	for len(out) < written {
		select {
		case m := <-pc.Messages():
			p := plainRecord{m.Offset, m.Timestamp, string(m.Key), string(m.Value), [2]bool{m.Key == nil, m.Value == nil}, nil}
			for _, h := range m.Headers {
				p.Headers = append(p.Headers, string(h.Key)+"="+string(h.Value))
			}
			out = append(out, p)
		case <-time.After(patience):
			t.Fatalf("sarama reads %d records of partition %d", len(out), partition)
		}
	}
	return out
}

// What a transaction wrote is read once it is committed; never what was aborted, nor markers.
func TestReadsWhatIsCommitted(t *testing.T) {
	everyKafka(t, func(t *testing.T, brokers []string) {
		plain := client(t, brokers)
		topic := newTopic(t, plain, 1, nil)
		first := client(t, brokers, kgo.TransactionalID(topic+"-1"))
		second := client(t, brokers, kgo.TransactionalID(topic+"-2"))
		end := func(c *kgo.Client, how kgo.TransactionEndTry) {
			t.Helper()
			if err := c.EndTransaction(t.Context(), how); err != nil {
				t.Fatal(err)
			}
		}
		begin := func(c *kgo.Client) {
			t.Helper()
			if err := c.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
		}
		n, want := 0, []string{}
		say := func(c *kgo.Client, counts bool) {
			t.Helper()
			v := fmt.Sprint(n)
			if n++; counts {
				want = append(want, v)
			}
			produce(t, c, topic, 0, v)
		}
		for range 10 {
			begin(first)
			begin(second)
			say(first, false)
			say(second, true)
			say(plain, true)
			say(first, false)
			end(first, kgo.TryAbort)
			begin(first)
			say(first, true)
			end(second, kgo.TryCommit)
			end(first, kgo.TryCommit)
		}
		f := run(t, Config{Brokers: brokers, PartitionBytes: 300}) // a fetch begins in the midst of transactions, too
		r := f.Read(topic, [16]byte{}, 0, 0)
		defer r.Close()
		var got []string
		for _, rec := range take(t, r, len(want)) {
			got = append(got, string(rec.Value))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// Many partitions are read at once; one that nobody takes from holds up no other, and no more of it
// is read than fits.
func TestAReaderThatStandsStillHoldsUpNobody(t *testing.T) {
	everyKafka(t, func(t *testing.T, brokers []string) {
		c := client(t, brokers)
		topic := newTopic(t, c, 4, nil)
		const records, budget = 400, 2_000
		for p := range int32(4) {
			for from := 0; from < records; from += 10 {
				produce(t, c, topic, p, values(from, 10)...)
			}
		}
		f := run(t, Config{Brokers: brokers, PartitionBytes: budget})
		still := f.Read(topic, [16]byte{}, 0, 0)
		defer still.Close()
		for p := int32(1); p < 4; p++ {
			r := f.Read(topic, [16]byte{}, p, 0)
			inOrder(t, take(t, r, records), records)
			r.Close()
		}
		f.mu.Lock()
		queued := still.queued
		f.mu.Unlock()
		if queued == 0 || queued > 2*budget {
			t.Errorf("%d bytes are held ready, and asked for are %d", queued, budget)
		}
		inOrder(t, take(t, still, records), records)
	})
}

// A batch that is larger than what is asked for comes whole.
func TestABatchLargerThanAFetch(t *testing.T) {
	everyKafka(t, func(t *testing.T, brokers []string) {
		c := client(t, brokers)
		topic := newTopic(t, c, 1, nil)
		large := strings.Repeat("l", 200_000)
		produce(t, c, topic, 0, "small")
		produce(t, c, topic, 0, large)
		produce(t, c, topic, 0, "last")
		r := run(t, Config{Brokers: brokers, PartitionBytes: 100}).Read(topic, [16]byte{}, 0, 0)
		defer r.Close()
		if got := take(t, r, 3); string(got[1].Value) != large || string(got[2].Value) != "last" {
			t.Errorf("%.20q", got[1].Value)
		}
	})
}

// An offset that the log does not have ends the reader: whoever reads decides what follows.
func TestOffsetsThatTheLogDoesNotHave(t *testing.T) {
	everyKafka(t, func(t *testing.T, brokers []string) {
		c := client(t, brokers)
		topic := newTopic(t, c, 1, nil)
		produce(t, c, topic, 0, values(0, 3)...)
		f := run(t, Config{Brokers: brokers})
		for _, from := range []int64{4, -1, 1 << 40} {
			r := f.Read(topic, [16]byte{}, 0, from)
			if err := end(t, r); !errors.Is(err, ErrOutOfRange) {
				t.Errorf("from %d: %v", from, err)
			}
			r.Close()
		}
		r := f.Read(topic, [16]byte{}, 0, 3) // the end is one that it will have
		defer r.Close()
		produce(t, c, topic, 0, "next")
		if got := take(t, r, 1); got[0].Offset != 3 {
			t.Error(got)
		}
	})
}

// Nothing is read when the reader is closed, or nobody waits any more.
func TestAReadersEnd(t *testing.T) {
	k := fake(t)
	c := client(t, k.ListenAddrs())
	topic := newTopic(t, c, 1, nil)
	f := run(t, Config{Brokers: k.ListenAddrs()})
	r := f.Read(topic, [16]byte{}, 0, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	produce(t, c, topic, 0, "a")
	take(t, r, 1)
	r.Close()
	produce(t, c, topic, 0, "b")
	if _, err := r.Next(t.Context()); !errors.Is(err, errClosed) {
		t.Error(err)
	}
	if _, ok, err := r.Poll(); ok || !errors.Is(err, errClosed) {
		t.Error(ok, err)
	}
}
