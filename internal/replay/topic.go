package replay

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// topic reads an event topic's partitions up to where they ended at the start, merged by
// their records' broker times: within a partition the order is the log's.
type topic struct {
	name    string
	lanes   lanes
	opened  bool
	total   int64
	done    atomic.Int64
	decoder event.Decoder
	headers []event.Header
	events  []event.Event
	bad     []event.BadEvent
	next    int // of events
	current kafka.Message
	record  Record
}

// lane is one partition.
type lane struct {
	reader    *kafka.Reader
	end       int64 // its end at the start
	head      kafka.Message
	sequences map[string]uint64 // the last one of each emitter
}

// lanes is a heap: the record with the earliest broker time is first.
type lanes []*lane

func (l lanes) Len() int { return len(l) }
func (l lanes) Less(i, j int) bool {
	a, b := &l[i].head, &l[j].head
	if !a.Time.Equal(b.Time) {
		return a.Time.Before(b.Time)
	}
	return a.Partition < b.Partition
}
func (l lanes) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l *lanes) Push(x any)   { *l = append(*l, x.(*lane)) }
func (l *lanes) Pop() any {
	old := *l
	last := old[len(old)-1]
	*l = old[:len(old)-1]
	return last
}

// patience is how long Kafka may stay silent before the records that it has promised.
const patience = 30 * time.Second

// Topic is the events of a topic, from its start to where it ends now.
func Topic(ctx context.Context, k *ops.Kafka, name string) (Source, error) {
	mechanism, err := k.Mechanism()
	if err != nil {
		return nil, fmt.Errorf("set up SASL: %w", err)
	}
	transport := &kafka.Transport{TLS: k.TLS, SASL: mechanism, ClientID: "tallygate-replay"}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(k.Brokers...), Transport: transport, Timeout: 10 * time.Second}
	t := &topic{name: name}
	offsets, err := partitionOffsets(ctx, client, name)
	if err != nil {
		return nil, err
	}
	dialer := &kafka.Dialer{Timeout: 10 * time.Second, DualStack: true, TLS: k.TLS, SASLMechanism: mechanism, ClientID: "tallygate-replay"}
	for _, o := range offsets {
		if o.FirstOffset >= o.LastOffset {
			continue
		}
		r := kafka.NewReader(kafka.ReaderConfig{
			Brokers: k.Brokers, Topic: name, Partition: o.Partition, Dialer: dialer,
			MinBytes: 1, MaxBytes: 8 << 20, MaxWait: 250 * time.Millisecond, QueueCapacity: 1000,
		})
		t.total += o.LastOffset - o.FirstOffset
		t.lanes = append(t.lanes, &lane{reader: r, end: o.LastOffset, sequences: map[string]uint64{}})
		if err := r.SetOffset(o.FirstOffset); err != nil {
			return nil, errors.Join(fmt.Errorf("go to the start of %s/%d: %w", name, o.Partition, err), t.Close())
		}
	}
	return t, nil
}

func partitionOffsets(ctx context.Context, client *kafka.Client, name string) ([]kafka.PartitionOffsets, error) {
	meta, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{name}})
	if err != nil {
		return nil, fmt.Errorf("ask Kafka for topic %s: %w", name, err)
	}
	var ask []kafka.OffsetRequest
	for _, t := range meta.Topics {
		if t.Error != nil {
			return nil, fmt.Errorf("ask Kafka for topic %s: %w", name, t.Error)
		}
		for _, p := range t.Partitions {
			ask = append(ask, kafka.FirstOffsetOf(p.ID), kafka.LastOffsetOf(p.ID))
		}
	}
	res, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{name: ask}})
	if err != nil {
		return nil, fmt.Errorf("list offsets of %s: %w", name, err)
	}
	for _, o := range res.Topics[name] {
		if o.Error != nil {
			return nil, fmt.Errorf("list offsets of %s/%d: %w", name, o.Partition, o.Error)
		}
	}
	return res.Topics[name], nil
}

func (t *topic) Total() (int64, bool) { return t.total, false }
func (t *topic) Done() int64          { return t.done.Load() }

// Close ends the readers.
func (t *topic) Close() error {
	var errs []error
	for _, l := range t.lanes {
		errs = append(errs, l.reader.Close())
	}
	t.lanes = nil
	return errors.Join(errs...)
}

func (t *topic) Next(ctx context.Context) (*Record, error) {
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	for {
		m := &t.current
		if len(t.bad) > 0 {
			bad := t.bad[0]
			t.bad = t.bad[1:]
			return nil, &BadRecord{Where: fmt.Sprintf("%s/%d@%d", t.name, m.Partition, m.Offset), Err: &bad}
		}
		if t.next < len(t.events) {
			t.next++
			t.record = Record{
				Event: t.events[t.next-1], Broker: event.FromTime(m.Time),
				Cause: verdict.Cause{Partition: int32(m.Partition), Offset: m.Offset},
			}
			return &t.record, nil
		}
		if err := t.advance(ctx); err != nil {
			return nil, err
		}
	}
}

// start reads each partition's first record.
func (t *topic) start(ctx context.Context) error {
	if t.opened {
		return nil
	}
	t.opened = true
	all := t.lanes
	t.lanes = t.lanes[:0:0]
	for i, l := range all {
		there, err := t.read(ctx, l)
		if err != nil {
			t.lanes = append(t.lanes, all[i:]...)
			return err
		}
		if there {
			t.lanes = append(t.lanes, l)
		}
	}
	heap.Init(&t.lanes)
	return nil
}

// read reads the partition's next record; there is none when its end has been reached.
func (t *topic) read(ctx context.Context, l *lane) (there bool, err error) {
	for {
		if at := l.reader.Offset(); at >= l.end {
			return false, l.reader.Close()
		}
		wait, cancel := context.WithTimeout(ctx, patience)
		before := l.reader.Offset()
		l.head, err = l.reader.ReadMessage(wait)
		cancel()
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if err != nil {
			return false, fmt.Errorf("read %s/%d at offset %d: %w", t.name, l.reader.Config().Partition, before, err)
		}
		if l.head.Offset >= l.end {
			return false, l.reader.Close()
		}
		t.done.Add(1)
		if !marker(&l.head) && !l.repeated() {
			return true, nil
		}
	}
}

// marker reports whether a message is one of Kafka's own, which end transactions: kafka-go
// hands them out, with a version and a type as their key.
func marker(m *kafka.Message) bool {
	return len(m.Key) == 4 && m.Key[0] == 0 && m.Key[1] == 0 && m.Key[2] == 0 && m.Key[3] <= 1
}

// repeated reports whether an emitter's retry put the record into the log a second time.
func (l *lane) repeated() bool {
	var instance string
	var seq uint64
	for _, h := range l.head.Headers {
		switch h.Key {
		case event.HeaderInstance:
			instance = string(h.Value)
		case event.HeaderSequence:
			seq, _ = event.ParseSequence(h.Value)
		}
	}
	if instance == "" || seq == 0 {
		return false
	}
	if seq <= l.sequences[instance] {
		return true
	}
	l.sequences[instance] = seq
	return false
}

// advance decodes the earliest record, and reads the next one of its partition.
func (t *topic) advance(ctx context.Context) error {
	if len(t.lanes) == 0 {
		return io.EOF
	}
	l := t.lanes[0]
	t.current = l.head
	t.headers = t.headers[:0]
	for _, h := range t.current.Headers {
		if event.IsCloudEvents([]byte(h.Key)) {
			t.headers = append(t.headers, event.Header{Key: h.Key, Value: h.Value})
		}
	}
	t.next = 0
	t.events, _ = t.decoder.Decode(t.current.Value, t.headers, t.current.Key, t.events[:0])
	t.bad = append(t.bad[:0], t.decoder.Bad...)
	there, err := t.read(ctx, l)
	if err != nil {
		return err
	}
	if there {
		heap.Fix(&t.lanes, 0)
	} else {
		heap.Pop(&t.lanes)
	}
	return nil
}
