package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/event"
)

// way is where one measured event was when. The topics are read after the run, so nothing
// here slows what is measured: each batch in Kafka still says when its producer made it and
// when the broker appended it.
type way struct {
	*probe
	event, state, verdict stamps
}

func (w *way) took() time.Duration { return w.denied.Sub(w.emitted) }

// stamps are the two times of a record's batch.
type stamps struct{ sent, appended time.Time }

// cutOff is what Kafka's whole milliseconds are too early on average.
const cutOff = 500 * time.Microsecond

// waysOfProbes returns the ways of all measured events.
func (b *bench) waysOfProbes(ctx context.Context) ([]*way, error) {
	names := topics.NamesOf(b.prefix)
	all := map[string]*way{}
	for uid, p := range b.probed {
		if p.kind == measured {
			all[uid] = &way{probe: p}
		}
	}
	for _, t := range []struct {
		topic string
		of    func(w *way) *stamps
	}{
		{names.Events, func(w *way) *stamps { return &w.event }},
		{names.Table, func(w *way) *stamps { return &w.state }},
		{names.Verdicts, func(w *way) *stamps { return &w.verdict }},
	} {
		err := b.batches(ctx, t.topic, func(uid string, s stamps) {
			// The first counts: a later record of the state is a checkpoint's.
			if w := all[uid]; w != nil && t.of(w).sent.IsZero() {
				*t.of(w) = s
			}
		})
		if err != nil {
			return nil, err
		}
	}
	ways := make([]*way, 0, len(all))
	for uid, w := range all {
		if w.event.sent.IsZero() || w.state.sent.IsZero() || w.verdict.sent.IsZero() {
			return nil, fmt.Errorf("%s is not in all topics: %+v", uid, w)
		}
		ways = append(ways, w)
	}
	return ways, nil
}

// batches reads a topic and calls do for each record, with the uid in its key.
func (b *bench) batches(ctx context.Context, topic string, do func(uid string, s stamps)) error {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	client, err := sarama.NewClient(strings.Split(b.kafka, ","), cfg)
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
			if next, err = fetch(client, topic, partition, next, do); err != nil || ctx.Err() != nil {
				return fmt.Errorf("read %s/%d at %d: %w", topic, partition, next, errors.Join(err, ctx.Err()))
			}
		}
	}
	return nil
}

// fetch reads some batches, and returns the offset behind them. It goes below sarama's
// consumer, which gives a record one of its batch's two times.
func fetch(client sarama.Client, topic string, partition int32, from int64, do func(uid string, s stamps)) (next int64, err error) {
	leader, err := client.Leader(topic, partition)
	if err != nil {
		return from, err
	}
	req := &sarama.FetchRequest{Version: 11, MinBytes: 1, MaxBytes: 64 << 20, MaxWaitTime: 100, SessionEpoch: -1}
	req.AddBlock(topic, partition, from, 8<<20, -1)
	resp, err := leader.Fetch(req)
	if err != nil {
		return from, err
	}
	block := resp.GetBlock(topic, partition)
	if block == nil || block.Err != sarama.ErrNoError {
		return from, fmt.Errorf("answer %+v", block)
	}
	next = from
	for _, set := range block.RecordsSet {
		batch := set.RecordBatch
		if batch == nil {
			return from, errors.New("records of an old format")
		}
		s := stamps{batch.FirstTimestamp.Add(cutOff), batch.MaxTimestamp.Add(cutOff)}
		for _, r := range batch.Records {
			if uid, ok := uidOf(r.Key); ok {
				do(uid, s)
			}
		}
		next = max(next, batch.FirstOffset+int64(batch.LastOffsetDelta)+1)
	}
	if next == from {
		return from, errors.New("nothing came")
	}
	return next, nil
}

// uidOf returns the uid in a record's key: of an event, of a state, or of a verdict on the
// rule that measured events go over. The traffic's is of no interest.
func uidOf(key []byte) (string, bool) {
	text, rule, isVerdict := strings.Cut(string(key), "|")
	if isVerdict && rule != "probe" {
		return "", false
	}
	if !strings.Contains(text, string(measured)+"-") {
		return "", false
	}
	dims, err := event.ParseKey([]byte(text))
	if err != nil || len(dims) != 1 {
		return text, true
	}
	return dims[0].Value, true
}
