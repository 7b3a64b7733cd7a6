package owner

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/budget"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/rules"
)

// BenchmarkApply applies bundles of records to one partition without Kafka: decode, match, step. It
// has a million uids, half of the events zipf-distributed, and five limits per event, which is the
// load of the throughput benchmark. The events come in rounds, so look at CPU-ns/event. In each round the
// ids are new ones.
func BenchmarkApply(b *testing.B) {
	for _, perRecord := range []int{1, 100} {
		b.Run(fmt.Sprintf("per-record=%d", perRecord), func(b *testing.B) { benchmarkApply(b, perRecord, true) })
		b.Run(fmt.Sprintf("no-ids/per-record=%d", perRecord), func(b *testing.B) { benchmarkApply(b, perRecord, false) })
	}
}

// The benchmark works.
func TestApplyWithoutKafka(t *testing.T) {
	t.Parallel()
	p := lonePartition(t)
	for _, records := range benchRecords(1<<10, 10, true) {
		p.Process(&Bundle{Batches: []kafkalog.Batch{kafkalog.Of(records...)}})
	}
	if p.Err() != nil || p.core.shard.Keys() == 0 || p.StateBytes() != p.core.shard.Bytes() {
		t.Errorf("%d keys of %d bytes: %v", p.core.shard.Keys(), p.StateBytes(), p.Err())
	}
}

const benchEvents = 1 << 19

func benchmarkApply(b *testing.B, perRecord int, ids bool) {
	p := lonePartition(b)
	bundles := benchRecords(benchEvents, perRecord, ids)
	round, spent := 0, time.Duration(0)
	apply := func(further int64) { // the same events again, later
		b.StopTimer()
		round++
		for _, records := range bundles {
			for i := range records {
				rename(records[i].Value, round)
			}
		}
		b.StartTimer()
		began := cpuTime()
		defer func() { spent += cpuTime() - began }()
		for _, records := range bundles {
			for i := range records {
				records[i].Offset += further
				records[i].Timestamp += further * 3 / 1000
			}
			p.Process(&Bundle{Batches: []kafkalog.Batch{kafkalog.Of(records...)}})
		}
	}
	apply(0)
	if p.Err() != nil {
		b.Fatal(p.Err())
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	spent = 0
	events := 0
	for ; events < b.N; events += benchEvents {
		apply(benchEvents)
	}
	b.StopTimer()
	runtime.ReadMemStats(&after)
	// An op is an event, also where b.N is less than what is applied at once.
	each := func(total uint64) float64 { return float64(total) / float64(events) }
	b.ReportMetric(each(uint64(b.Elapsed().Nanoseconds())), "ns/op")
	b.ReportMetric(each(uint64(spent)), "CPU-ns/event")
	b.ReportMetric(each(after.TotalAlloc-before.TotalAlloc), "B/op")
	b.ReportMetric(each(after.Mallocs-before.Mallocs), "allocs/op")
	b.ReportMetric(float64(p.core.shard.Bytes())/float64(p.core.shard.Keys()), "B/key")
}

// lonePartition is the only partition, without Kafka behind it.
func lonePartition(tb testing.TB) *Partition {
	src, err := os.ReadFile("../../../bench/throughput/rules.yaml")
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
	env := loneEnv()
	p := New(env, 0, &Session{ConsumerGroupSession: aSession{ctx: context.Background()}, End: func(error) {}})
	p.core.begin(&Rules{Set: set, Matches: env.Metrics.MatchesOf(set)}, shard.Settled{})
	env.Metrics.opened(0, 0)
	return p
}

func loneEnv() *Env {
	return &Env{
		Names: topics.NamesOf("lone"), Partitions: 1, Metrics: NewMetrics(nil), Log: slog.Default(), Instance: "lone",
		Fail: func(err error) error { return fmt.Errorf("%w: %w", ErrFatal, err) }, Forwarding: NewForwarding(budget.New(256<<20), 1),
	}
}

// aSession is one in which nothing happens.
type aSession struct {
	sarama.ConsumerGroupSession
	ctx context.Context
}

func (s aSession) Context() context.Context { return s.ctx }

// cpuTime returns the process' CPU time: on a busy machine it says more than time does.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// idMark stands in each id before the number of the round.
const idMark = "e-"

// rename gives a record's events the ids of a round.
func rename(value []byte, round int) {
	for rest := value; ; {
		at := bytes.Index(rest, []byte(`"id":"`+idMark))
		if at < 0 {
			return
		}
		rest = rest[at+len(`"id":"`+idMark):]
		copy(rest, fmt.Sprintf("%03d", round%1000))
	}
}

func benchRecords(events, perRecord int, ids bool) (bundles [][]kafkalog.Record) {
	return benchRecordsFrom(0, events, perRecord, ids)
}

// benchRecordsFrom is benchRecords behind first events: other ones, later.
func benchRecordsFrom(first, events, perRecord int, ids bool) (bundles [][]kafkalog.Record) {
	const uids = 1_000_000
	rng := rand.New(rand.NewPCG(1, 1+uint64(first)))
	zipf := rand.NewZipf(rng, 1.05, 8, uids-1)
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC).UnixMilli()
	var value []byte
	for i := first; i < first+events; i++ {
		uid := uint64(rng.IntN(uids))
		if i%2 == 0 {
			uid = zipf.Uint64()
		}
		id, api := "", "search.query"
		if ids {
			id = fmt.Sprintf(`"id":"%s000-%010x",`, idMark, i)
		}
		if i%3 == 0 {
			api = "search.suggest"
		}
		body := fmt.Appendf(nil, `{%s"uid":"user-%07d","api":"%s","outcome":"success","ip":"203.0.113.%d","attrs":{"device":"d%d","bytes":%d,"discounted":true}}`,
			id, uid, api, i%250, i%1000, i%4096)
		switch {
		case perRecord == 1:
			value = body
		case i%perRecord == 0:
			value = append([]byte{'['}, body...)
		default:
			value = append(append(value, ','), body...)
		}
		if (i+1)%perRecord != 0 && i+1 < first+events {
			continue
		}
		if perRecord > 1 {
			value = append(value, ']')
		}
		if n := len(bundles); n == 0 || len(bundles[n-1]) == 256 {
			bundles = append(bundles, make([]kafkalog.Record, 0, 256))
		}
		last := &bundles[len(bundles)-1]
		*last = append(*last, kafkalog.Record{Offset: int64(i), Timestamp: now + int64(i)*3/1000, Value: value})
	}
	return bundles
}
