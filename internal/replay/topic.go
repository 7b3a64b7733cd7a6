package replay

import (
	"context"
	"fmt"

	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/internal/topiclog"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// topic is an event topic, up to where it ended at the start, its partitions merged by their records'
// broker times.
type topic struct {
	name      string
	log       *topiclog.Log
	decoder   event.Decoder
	sequences map[producer]uint64 // the last ones
	headers   []event.Header
	events    []event.Event
	bad       []event.BadEvent
	next      int // of events
	current   *kafka.Message
	record    Record
}

// producer is an emitter's instance, and the partition that it wrote to.
type producer struct {
	partition int   // that the record is in
	from      int32 // that it was sent to: another one where a mirror has merged several
	instance  string
}

// Topic is the events of a topic, from its start to where it ends now.
func Topic(ctx context.Context, k *ops.Kafka, name string) (Source, error) {
	log, err := topiclog.Open(ctx, topiclog.Config{Kafka: k, Topic: name, ClientID: "tallygate-replay"})
	if err != nil {
		return nil, err
	}
	return &topic{name: name, log: log, sequences: map[producer]uint64{}}, nil
}

func (t *topic) Total() (int64, bool) { return t.log.Total(), false }
func (t *topic) Done() int64          { return t.log.Done() }
func (t *topic) Close() error         { return t.log.Close() }

func (t *topic) Next(ctx context.Context) (*Record, error) {
	for {
		m := t.current
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

// repeated reports whether an emitter's retry put the record into the log a second time.
func (t *topic) repeated(m *kafka.Message) bool {
	from := producer{partition: m.Partition, from: int32(m.Partition)}
	var seq uint64
	for _, h := range m.Headers {
		switch h.Key {
		case event.HeaderInstance:
			from.instance = string(h.Value)
		case event.HeaderSequence:
			seq, _ = event.ParseSequence(h.Value)
		case event.HeaderPartition:
			if to, ok := event.ParsePartition(h.Value); ok {
				from.from = to
			}
		}
	}
	if from.instance == "" || seq == 0 {
		return false
	}
	if seq <= t.sequences[from] {
		return true
	}
	t.sequences[from] = seq
	return false
}

// advance decodes the next record.
func (t *topic) advance(ctx context.Context) error {
	for {
		m, err := t.log.Next(ctx)
		if err != nil {
			return err
		}
		if !t.repeated(m) {
			t.current = m
			break
		}
	}
	t.headers = t.headers[:0]
	for _, h := range t.current.Headers {
		if event.IsCloudEvents([]byte(h.Key)) {
			t.headers = append(t.headers, event.Header{Key: h.Key, Value: h.Value})
		}
	}
	t.next = 0
	t.events, _ = t.decoder.Decode(t.current.Value, t.headers, t.current.Key, t.events[:0])
	t.bad = append(t.bad[:0], t.decoder.Bad...)
	return nil
}
