package owner

import (
	"runtime"
	"testing"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// BenchmarkRecover takes a partition over without Kafka: what a changelog has is loaded, and where to go on is
// found. The changelog is what checkpoints wrote of 3.5 million events of BenchmarkApply's load, a checkpoint every
// half a million: a million keys with five limits and ids, many of them several times. An op is a key: look at
// CPU-ns/key.
func BenchmarkRecover(b *testing.B) {
	if benchLog == nil {
		benchLog = aChangelog(b, 7, 1<<19)
	}
	log := benchLog
	records, keys, spent := 0, 0, time.Duration(0)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	for keys < b.N {
		began := cpuTime()
		p := recovered(b, log)
		spent += cpuTime() - began
		keys += p.core.shard.Keys()
		for _, batch := range log {
			records += len(batch)
		}
	}
	b.StopTimer()
	runtime.ReadMemStats(&after)
	each := func(total float64) float64 { return total / float64(keys) }
	b.ReportMetric(each(float64(b.Elapsed().Nanoseconds())), "ns/op")
	b.ReportMetric(each(float64(spent)), "CPU-ns/key")
	b.ReportMetric(each(float64(records)), "records/key")
	b.ReportMetric(each(float64(after.TotalAlloc-before.TotalAlloc)), "B/op")
	b.ReportMetric(each(float64(after.Mallocs-before.Mallocs)), "allocs/op")
}

// benchLog is made once, for all of a benchmark's runs.
var benchLog [][]kafkalog.Record

// The benchmark works: what a partition has written is what the next one has.
func TestRecoverWithoutKafka(t *testing.T) {
	t.Parallel()
	log := aChangelog(t, 2, 1<<10)
	newest := map[string]string{}
	for _, batch := range log {
		for _, rec := range batch {
			newest[string(rec.Key)] = string(rec.Value)
		}
	}
	delete(newest, shard.CheckpointKey)
	p := recovered(t, log)
	if n := p.core.shard.Keys(); n != len(newest) || n < 1<<10 {
		t.Errorf("%d keys of %d", n, len(newest))
	}
}

// aChangelog is the output of a partition's checkpoints, one behind each of some rounds of events, in batches.
func aChangelog(tb testing.TB, rounds, events int) (log [][]kafkalog.Record) {
	tb.Helper()
	p := lonePartition(tb)
	s := p.core.shard
	next := int64(0)
	take := func() {
		for _, a := range s.Effects().States {
			if n := len(log); n == 0 || len(log[n-1]) == 1000 {
				log = append(log, make([]kafkalog.Record, 0, 1000))
			}
			last := &log[len(log)-1]
			*last = append(*last, kafkalog.Record{Offset: next, Key: a.Key, Value: a.Value})
			next++
		}
		s.Effects().Reset()
	}
	for round := range rounds {
		for _, records := range benchRecordsFrom(round*events, events, 1, true) {
			p.Process(&Bundle{Batches: []kafkalog.Batch{kafkalog.Of(records...)}})
		}
		if p.Err() != nil {
			tb.Fatal(p.Err())
		}
		cut, err := s.BeginCheckpoint()
		if err != nil {
			tb.Fatal(err)
		}
		for more := true; more; {
			_, more = cut.CopyNext()
		}
		if err := cut.End(); err != nil {
			tb.Fatal(err)
		}
		cut.Covered()
		take()
	}
	return log
}

// recovered is a partition that has loaded a changelog.
func recovered(tb testing.TB, log [][]kafkalog.Record) *Partition {
	tb.Helper()
	p := lonePartition(tb)
	t := newTakeover(p.core, p.out)
	for _, batch := range log {
		for i := range batch {
			if err := t.take(&batch[i]); err != nil {
				tb.Fatal(err)
			}
		}
	}
	if err := t.load(); err != nil {
		tb.Fatal(err)
	}
	found := shard.Found{Newest: [shard.Sources]int64{1 << 40, 0}, Committed: -1}
	for src := range found.EpochEnd {
		found.EpochEnd[src] = shard.EpochEnd{Known: true, Epoch: shard.NoEpoch, End: found.Newest[src]}
	}
	if _, err := p.core.shard.Takeover().Resume(found, p.core.clock()); err != nil {
		tb.Fatal(err)
	}
	if err := p.core.shard.Takeover().Republish(p.core.clock()); err != nil {
		tb.Fatal(err)
	}
	return p
}
