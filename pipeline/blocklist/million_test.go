package blocklist

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/store"
	"github.com/tallygate/tallygate/pipeline/blocklist/publish"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

// BenchmarkSnapshot takes a snapshot of TALLYGATE_TEST_ENTRIES verdicts (10,000 when it is not set)
// from a real Redis into an enforcer's table, while verdicts go on changing: the time until the
// table is ready, and what an entry takes in both.
func BenchmarkSnapshot(b *testing.B) {
	entries, err := strconv.Atoi(cmp.Or(os.Getenv("TALLYGATE_TEST_ENTRIES"), "10000"))
	if err != nil {
		b.Fatal(err)
	}
	client := rig.Dial(b, rig.RealRedis(b))
	used := func() int64 {
		n, _ := strconv.ParseInt(client.InfoMap(b.Context(), "memory").Item("Memory", "used_memory"), 10, 64)
		return n
	}
	s := rig.NewStore(b, client)
	s.StreamLength, s.Grace, s.BeatMillis = 1<<16, 1, 1000
	empty, at := used(), int64(0)
	write := func(ctx context.Context, n int) {
		records := make([]publish.Record, n)
		for i := range records {
			records[i] = rig.Record(rig.Block(fmt.Sprint((int(at)+i)*7919%entries), at+int64(i)+1, 24*time.Hour))
		}
		applied := records[0].Time + 1
		if _, _, err := s.Apply(ctx, store.Batch{Start: at, Next: at + int64(n), Applied: applied, Records: records}); err != nil && ctx.Err() == nil {
			b.Error(err)
		}
		at += int64(n)
	}
	for at < int64(entries) {
		write(b.Context(), min(500, entries-int(at)))
	}
	filled := used()
	stop := testrun.Start(b, func(ctx context.Context) error {
		for ctx.Err() == nil {
			write(ctx, 20)
			retry.Sleep(ctx, 10*time.Millisecond)
		}
		return nil
	})
	defer stop()
	var perEntry float64
	for b.Loop() {
		b.StopTimer()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		b.StartTimer()
		table, err := enforce.NewTable(enforce.Config{})
		if err != nil {
			b.Fatal(err)
		}
		_, end := startFeed(b, client, table, nil)
		for !table.Ready() {
			time.Sleep(time.Millisecond)
		}
		b.StopTimer()
		end()
		runtime.GC()
		runtime.ReadMemStats(&after)
		perEntry = float64(after.HeapAlloc-before.HeapAlloc) / float64(table.Len())
		b.StartTimer()
	}
	b.ReportMetric(perEntry, "table-B/entry")
	b.ReportMetric(float64(filled-empty)/float64(entries), "redis-B/entry")
	b.ReportMetric(float64(entries), "entries")
}
