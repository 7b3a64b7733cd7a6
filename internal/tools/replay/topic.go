package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/internal/run/kafkaconn/clients"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/tools/accesslog"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/verdict"
)

// topic is an event topic up to its end at the start of the replay, with its partitions merged by
// the broker times of their records.
type topic struct {
	name      string
	log       eventLog
	decoder   event.Decoder
	repeats   map[int32]*shard.Repeats // by partition
	headers   []event.Header
	events    []event.Event
	bad       []event.BadEvent
	next      int   // of events
	partition int32 // of current
	current   *kafkalog.Record
	record    Record
}

// eventLog is records of all partitions of a topic.
type eventLog interface {
	Next(ctx context.Context) (partition int32, rec *kafkalog.Record, err error)
	Total() int64
	Done() int64
	Close()
}

// Topic reads the events of a topic from its start to its current end.
func Topic(ctx context.Context, k *kafkaconn.Kafka, name string) (Source, error) {
	return TopicFrom(ctx, k, name, time.Time{})
}

// TopicFrom is Topic from the first record of a time on, by the broker's clock. The zero time is the start.
func TopicFrom(ctx context.Context, k *kafkaconn.Kafka, name string, from time.Time) (Source, error) {
	log, err := kafkalog.OpenMerge(ctx, clients.Log(k, "tallygate-replay"), name, from, time.Time{})
	if err != nil {
		return nil, err
	}
	return &topic{name: name, log: log, repeats: map[int32]*shard.Repeats{}}, nil
}

// TellUnread tells names of fields that are in the events of a topic, and that nothing reads: see accesslog.Unread.
// Sources of lines tell by themselves.
func TellUnread(of Source, warn func(text string)) {
	if t, ok := of.(interface{ OnUnread(told func(name string)) }); ok {
		t.OnUnread(accesslog.Unread(warn))
	}
}

// OnUnread has the function told each name of a field that nothing reads. Call it before Next.
func (t *topic) OnUnread(told func(name string)) { t.decoder.Unread = told }

func (t *topic) Total() (int64, bool) { return t.log.Total(), false }
func (t *topic) Done() int64          { return t.log.Done() }

func (t *topic) Where() string {
	return fmt.Sprintf("%s/%d@%d", t.name, t.partition, t.record.Cause.Offset)
}

func (t *topic) Close() error {
	t.log.Close()
	return nil
}

func (t *topic) Next(ctx context.Context) (*Record, error) {
	for {
		m := t.current
		if len(t.bad) > 0 {
			bad := t.bad[0]
			t.bad = t.bad[1:]
			return nil, &BadRecord{Where: fmt.Sprintf("%s/%d@%d", t.name, t.partition, m.Offset), Err: &bad}
		}
		if t.next < len(t.events) {
			t.next++
			t.record = Record{
				Event: t.events[t.next-1], Broker: shard.BrokerTime(m),
				Cause: verdict.Cause{Partition: t.partition, Offset: m.Offset},
			}
			return &t.record, nil
		}
		if err := t.advance(ctx); err != nil {
			return nil, err
		}
	}
}

// repeated reports whether an emitter's retry put the record into the log a second time.
func (t *topic) repeated(rec *kafkalog.Record) bool {
	seen := t.repeats[t.partition]
	if seen == nil {
		seen = shard.NewRepeats(t.partition)
		t.repeats[t.partition] = seen
	}
	return seen.Has(rec)
}

// advance decodes the next record.
func (t *topic) advance(ctx context.Context) error {
	for {
		partition, rec, err := t.log.Next(ctx)
		if bad, ok := errors.AsType[*kafkalog.Unreadable](err); ok {
			return &BadRecord{Where: fmt.Sprintf("%s/%d@%d", t.name, partition, bad.First), Err: bad}
		}
		if err != nil {
			return err
		}
		if t.partition = partition; !t.repeated(rec) {
			t.current = rec
			break
		}
	}
	t.headers = shard.CloudEvents(t.headers[:0], t.current.Headers)
	t.next = 0
	t.events, _ = t.decoder.Decode(t.current.Value, t.headers, t.current.Key, t.events[:0])
	t.bad = append(t.bad[:0], t.decoder.Bad...)
	return nil
}
