package aggregate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/event"
)

// bomb is a record batch of so many records, of which the first has a value of size bytes,
// compressed with zstd.
func bomb(t *testing.T, records int32, size int) []byte {
	t.Helper()
	list := make([]kmsg.Record, records)
	for i := range list {
		list[i].Value = make([]byte, size)
		size = 1
	}
	return compressed(t, list...)
}

// compressed is a record batch of these records, compressed with zstd.
func compressed(t *testing.T, list ...kmsg.Record) []byte {
	t.Helper()
	var raw bytes.Buffer
	z, err := zstd.NewWriter(&raw, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	var buf []byte
	for i := range list {
		r := &list[i]
		r.OffsetDelta = int32(i)
		body := r.AppendTo(nil)[1:] // without its length, which is 0 yet
		buf = append(binary.AppendVarint(buf[:0], int64(len(body))), body...)
		if _, err := z.Write(buf); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	records := int32(len(list))
	b := kmsg.RecordBatch{
		Magic: 2, Attributes: 4, LastOffsetDelta: records - 1, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		NumRecords: records, Records: raw.Bytes(),
	}
	wire := b.AppendTo(nil)
	binary.BigEndian.PutUint32(wire[8:], uint32(len(wire)-12))
	binary.BigEndian.PutUint32(wire[17:], crc32.Checksum(wire[21:], crc32.MakeTable(crc32.Castagnoli)))
	return wire
}

// appendRaw appends a batch unchanged.
func (r *rig) appendRaw(topic string, partition int32, wire []byte) (offset int64) {
	r.t.Helper()
	// Without retries: a broker that decompresses a bomb may answer late, and would have it twice.
	c, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.RequestRetries(0), kgo.RequestTimeoutOverhead(2*time.Minute))
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	meta := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	meta.Topics = append(meta.Topics, t)
	is, err := meta.RequestWith(r.t.Context(), c)
	if err != nil {
		r.t.Fatal(err)
	}
	p := kmsg.ProduceRequestTopicPartition{Partition: partition, Records: wire}
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, TopicID: is.Topics[0].TopicID, Partitions: []kmsg.ProduceRequestTopicPartition{p}}}
	resp, err := req.RequestWith(r.t.Context(), c)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.Topics[0].Partitions[0].BaseOffset
}

// One batch of 28 KB that decompresses to 257 MiB once stopped every partition of its instance,
// until retention deleted it. Now it is a dead letter, the records after it are counted, and a
// restart changes nothing.
func TestABombStopsNoPartition(t *testing.T) {
	everyKafka(t, func(t *testing.T, r *rig) {
		set := compile(t, byIPAndUID)
		m := r.begin(set)
		l := r.load()
		l.emit(50)
		id := event.Partition([]byte("u0"), rigPartitions)
		wire := bomb(t, 3, 257<<20)
		if len(wire) > 64<<10 {
			t.Fatalf("a bomb of %d bytes", len(wire))
		}
		at := r.appendRaw(r.names.Events, id, wire)
		l.emit(100)
		l.counted(m)
		r.quiet(m)
		eventually(t, "the dead letter is there", func() bool { return r.letters() > 0 })
		letters := r.records(r.names.DeadLetters, 0)
		for p := range int32(rigPartitions - 1) {
			letters = append(letters, r.records(r.names.DeadLetters, p+1)...)
		}
		if len(letters) != 1 {
			t.Fatalf("%d dead letters", len(letters))
		}
		for name, want := range map[string]string{
			"reason": "too-large", "topic": r.names.Events, "partition": strconv.Itoa(int(id)),
			"offset": strconv.FormatInt(at, 10), "last-offset": strconv.FormatInt(at+2, 10),
		} {
			if got := header(letters[0], name); got != want {
				t.Errorf("header %s is %q, not %q", name, got, want)
			}
		}
		if got, _ := m.sample(t, "tallygate_records_unreadable_total"); got != 3 {
			t.Errorf("%v records are said to have been passed over", got)
		}
		m.end(t)
		l.emit(50)
		m = r.begin(set)
		l.counted(m)
		l.stays(m)
		if n := r.letters(); n != 1 {
			t.Errorf("%d dead letters after a restart", n)
		}
	})
}

// After a crash between a bomb and the checkpoint that covers it, the partition reaches the same
// state again.
func TestABombAndACrash(t *testing.T) {
	onKafka(t, func(t *testing.T, r *rig) {
		m := r.begin(compile(t, byIPAndUID))
		l := r.load()
		for range 3 {
			l.emit(60)
			r.appendRaw(r.names.Events, event.Partition([]byte("u1"), rigPartitions), bomb(t, 2, 20<<20))
			l.emit(60)
			for _, p := range m.owned() {
				p.Fail(errors.New("killed by the test"))
			}
		}
		r.ready(m)
		l.counted(m)
		l.stays(m)
		// The last one may still be in flight. Each is there as often as its bomb was read.
		eventually(t, "each bomb has its dead letter", func() bool { return r.letters() >= 3 })
		if n := r.letters(); n > 12 {
			t.Errorf("%d dead letters of three bombs", n)
		}
	})
}

// A large batch is not a bomb: as much as producers send in a batch is counted.
func TestALargeBatchIsCounted(t *testing.T) {
	onKafka(t, func(t *testing.T, r *rig) {
		m := r.begin(compile(t, yearly))
		var raw []byte
		const n = 10
		for i := range int32(n) {
			array := []byte{'['}
			for j := range 1000 {
				if j > 0 {
					array = append(array, ',')
				}
				e := hit("u0", "a")
				e.Attrs = []event.Attr{{Name: "padding", Value: event.Value{Kind: event.String, Text: strings.Repeat("x", 900)}}}
				array = event.AppendJSON(array, e)
			}
			k := kmsg.Record{OffsetDelta: i, Value: append(array, ']')}
			body := k.AppendTo(nil)[1:]
			raw = append(binary.AppendVarint(raw, int64(len(body))), body...)
		}
		z, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		b := kmsg.RecordBatch{
			Magic: 2, Attributes: 4, LastOffsetDelta: n - 1, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
			NumRecords: n, Records: z.EncodeAll(raw, nil),
		}
		wire := b.AppendTo(nil)
		binary.BigEndian.PutUint32(wire[8:], uint32(len(wire)-12))
		binary.BigEndian.PutUint32(wire[17:], crc32.Checksum(wire[21:], crc32.MakeTable(crc32.Castagnoli)))
		r.appendRaw(r.names.Events, event.Partition([]byte("u0"), rigPartitions), wire)
		eventually(t, "all are counted", func() bool { return r.count("u0", "per-year", m) == n*1000*event.One })
	})
}
