package aggregate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/rules"
)

// BenchmarkApply applies bundles of records to one partition without Kafka: decode, match, step. A
// million uids, half of the events zipf-distributed, five limits an event: the throughput
// benchmark's load. The events come in rounds, so look at ns/event.
func BenchmarkApply(b *testing.B) {
	for _, perRecord := range []int{1, 100} {
		b.Run(fmt.Sprintf("per-record=%d", perRecord), func(b *testing.B) { benchmarkApply(b, perRecord) })
	}
}

// What the benchmark does works.
func TestApplyWithoutKafka(t *testing.T) {
	t.Parallel()
	p := lonePartition(t)
	for _, records := range benchRecords(1<<10, 10) {
		p.process(&bundle{batches: []kafkalog.Batch{kafkalog.Of(records...)}})
	}
	if p.ctx.Err() != nil || p.shard.Keys() == 0 {
		t.Errorf("%d keys: %v", p.shard.Keys(), context.Cause(p.ctx))
	}
}

const benchEvents = 1 << 19

func benchmarkApply(b *testing.B, perRecord int) {
	p := lonePartition(b)
	bundles := benchRecords(benchEvents, perRecord)
	apply := func(further int64) { // the same events again, later
		for _, records := range bundles {
			for i := range records {
				records[i].Offset += further
				records[i].Timestamp += further * 3 / 1000
			}
			p.process(&bundle{batches: []kafkalog.Batch{kafkalog.Of(records...)}})
		}
	}
	apply(0)
	if p.ctx.Err() != nil {
		b.Fatal(context.Cause(p.ctx))
	}
	b.ResetTimer()
	events := 0
	for ; events < b.N; events += benchEvents {
		apply(benchEvents)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events), "ns/event")
	b.ReportMetric(float64(p.shard.Bytes())/float64(p.shard.Keys()), "B/key")
}

// lonePartition is the only one there is, with no Kafka behind it.
func lonePartition(tb testing.TB) *partition {
	src, err := os.ReadFile("../../internal/bench/throughput/rules.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	set, err := rules.Compile("rules.yaml", src)
	if err != nil {
		tb.Fatal(err)
	}
	for _, l := range set.Limits {
		l.Limit = event.MaxDecimal // no verdict: there is no changelog to write through to
	}
	a, err := New(Config{Brokers: []string{"nowhere:9092"}, Rules: set})
	if err != nil {
		tb.Fatal(err)
	}
	a.found.Store(&topics.Layout{Partitions: 1})
	p := newPartition(a, 0, &session{ConsumerGroupSession: idleSession{ctx: context.Background()}, end: func(error) {}})
	p.beginWith(a.book.version(0, set))
	a.metrics.opened(p)
	return p
}

// idleSession is one in which nothing happens.
type idleSession struct {
	sarama.ConsumerGroupSession
	ctx context.Context
}

func (s idleSession) Context() context.Context { return s.ctx }

func benchRecords(events, perRecord int) (bundles [][]kafkalog.Record) {
	const uids = 1_000_000
	rng := rand.New(rand.NewPCG(1, 1))
	zipf := rand.NewZipf(rng, 1.1, 8, uids-1)
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC).UnixMilli()
	var value []byte
	for i := range events {
		uid := uint64(rng.IntN(uids))
		if i%2 == 0 {
			uid = zipf.Uint64()
		}
		body := fmt.Appendf(nil, `{"uid":"user-%07d","api":"search.query","outcome":"success","ip":"203.0.113.%d","attrs":{"device":"d%d","bytes":%d,"discounted":true}}`,
			uid, i%250, i%1000, i%4096)
		switch {
		case perRecord == 1:
			value = body
		case i%perRecord == 0:
			value = append([]byte{'['}, body...)
		default:
			value = append(append(value, ','), body...)
		}
		if (i+1)%perRecord != 0 && i+1 < events {
			continue
		}
		if perRecord > 1 {
			value = append(value, ']')
		}
		if n := len(bundles); n == 0 || len(bundles[n-1]) == bundleSize {
			bundles = append(bundles, make([]kafkalog.Record, 0, bundleSize))
		}
		last := &bundles[len(bundles)-1]
		*last = append(*last, kafkalog.Record{Offset: int64(i), Timestamp: now + int64(i)*3/1000, Value: value})
	}
	return bundles
}
