package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/verdict"
)

// way is where one event was when. The topics are read after the run, so nothing here slows
// what is measured: each batch in Kafka still says when its producer made it and when the
// broker appended it.
type way struct {
	*probe
	event, state, verdict stamps
}

func (w *way) took() time.Duration { return w.denied.Sub(w.emitted) }

// stamps are the two times of a record's batch.
type stamps struct{ sent, appended time.Time }

// cutOff is what Kafka's whole milliseconds are too early on average.
const cutOff = 500 * time.Microsecond

// place is where a record is.
type place struct {
	partition int32
	offset    int64
}

// ways returns the ways of all events that were denied, the warm-up's excepted. A verdict
// names its event by its cause, and the record of its state by its seq.
func (b *bench) ways(ctx context.Context) ([]*way, error) {
	names := topics.NamesOf(b.prefix)
	var all []*way
	events, states := map[place]*way{}, map[place]*way{}
	err := b.records(ctx, names.Verdicts, func(at place, r *sarama.Record, s stamps) error {
		if verdict.OwnRecord(r.Key) {
			return nil
		}
		v, err := verdict.Parse(r.Value)
		if err != nil {
			return err
		}
		p := b.probed[v.Key[0].Value]
		if event := (place{v.Cause.Partition, v.Cause.Offset}); p != nil && p.kind != warmUp && events[event] == nil {
			w := &way{probe: p, verdict: s}
			events[event], states[place{at.partition, v.Seq}] = w, w
			all = append(all, w)
		}
		return nil
	})
	for topic, of := range map[string]func(at place, s stamps){
		names.Events: func(at place, s stamps) {
			if w := events[at]; w != nil {
				w.event = s
			}
		},
		names.Table: func(at place, s stamps) {
			if w := states[at]; w != nil {
				w.state = s
			}
		},
	} {
		if err == nil {
			err = b.records(ctx, topic, func(at place, _ *sarama.Record, s stamps) error {
				of(at, s)
				return nil
			})
		}
	}
	for _, w := range all {
		if err == nil && (w.event.sent.IsZero() || w.state.sent.IsZero()) {
			err = fmt.Errorf("the event or the state of a verdict is not in its topic: %+v", *w)
		}
	}
	return all, err
}

// records reads a topic.
func (b *bench) records(ctx context.Context, topic string, do func(at place, r *sarama.Record, s stamps) error) error {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	client, err := sarama.NewClient(strings.Split(b.near, ","), cfg)
	if err != nil {
		return err
	}
	defer client.Close()
	for partition := range int32(b.partitions) {
		next, err := client.GetOffset(topic, partition, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
		if err != nil {
			return err
		}
		for next < end {
			if next, err = fetch(client, topic, place{partition, next}, do); err != nil || ctx.Err() != nil {
				return fmt.Errorf("read %s/%d at %d: %w", topic, partition, next, errors.Join(err, ctx.Err()))
			}
		}
	}
	return nil
}

// fetch reads some batches, and returns the offset behind them. It goes below sarama's
// consumer, which gives a record one of its batch's two times.
func fetch(client sarama.Client, topic string, from place, do func(at place, r *sarama.Record, s stamps) error) (next int64, err error) {
	leader, err := client.Leader(topic, from.partition)
	if err != nil {
		return from.offset, err
	}
	req := &sarama.FetchRequest{Version: 11, MinBytes: 1, MaxBytes: 64 << 20, MaxWaitTime: 100, SessionEpoch: -1}
	req.AddBlock(topic, from.partition, from.offset, 8<<20, -1)
	resp, err := leader.Fetch(req)
	if err != nil {
		return from.offset, err
	}
	block := resp.GetBlock(topic, from.partition)
	if block == nil || !errors.Is(block.Err, sarama.ErrNoError) {
		return from.offset, fmt.Errorf("answer %+v", block)
	}
	next = from.offset
	for _, set := range block.RecordsSet {
		batch := set.RecordBatch
		if batch == nil {
			return next, errors.New("records of an old format")
		}
		s := stamps{batch.FirstTimestamp.Add(cutOff), batch.MaxTimestamp.Add(cutOff)}
		for _, r := range batch.Records {
			if err := do(place{from.partition, batch.FirstOffset + r.OffsetDelta}, r, s); err != nil {
				return next, err
			}
		}
		next = max(next, batch.FirstOffset+int64(batch.LastOffsetDelta)+1)
	}
	if next == from.offset {
		return next, errors.New("nothing came")
	}
	return next, nil
}
