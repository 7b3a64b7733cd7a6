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

const benchEvents = 1 << 19

func benchmarkApply(b *testing.B, perRecord int) {
	p := lonePartition(b)
	bundles := benchBundles(benchEvents, perRecord)
	apply := func(further int64) { // the same events again, later
		for _, bu := range bundles {
			for _, m := range bu.msgs {
				m.Offset += further
				m.Timestamp = m.Timestamp.Add(time.Duration(further) * 3 * time.Microsecond)
			}
			p.process(bu)
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
	b.ReportMetric(float64(p.table.Bytes())/float64(p.table.Len()), "B/key")
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
	a.metrics.opened(p)
	return p
}

// idleSession is one in which nothing happens.
type idleSession struct {
	sarama.ConsumerGroupSession
	ctx context.Context
}

func (s idleSession) Context() context.Context { return s.ctx }

func benchBundles(events, perRecord int) (bundles []*bundle) {
	const uids = 1_000_000
	rng := rand.New(rand.NewPCG(1, 1))
	zipf := rand.NewZipf(rng, 1.1, 8, uids-1)
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	var b *bundle
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
		if b == nil || len(b.msgs) == bundleSize {
			b = &bundle{topic: "tallygate.events"}
			bundles = append(bundles, b)
		}
		b.msgs = append(b.msgs, &sarama.ConsumerMessage{Offset: int64(i), Timestamp: now.Add(time.Duration(i) * 3 * time.Microsecond), Value: value})
	}
	return bundles
}
