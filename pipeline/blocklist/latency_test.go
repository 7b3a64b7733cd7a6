package blocklist

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// A table measures blocks that the stream brings, each once: neither those of its first snapshot, nor
// what it has already when Redis is refilled.
func TestATableMeasuresWhatTheStreamBrings(t *testing.T) {
	s := newStage(t, single(miniredis.RunT(t).Addr()))
	s.publisher(nil)
	block := func(uid string) {
		s.seq++
		v := rig.Block(uid, s.seq, time.Hour)
		v.Cause = verdict.Cause{ID: "e", Offset: s.seq}
		s.publish(uid, v, false)
	}
	block("before")
	testrun.Eventually(t, "Redis has it before anything follows", func() bool { return s.redisHas("before") })
	table, err := enforce.NewTable(enforce.Config{Shards: stageShards})
	if err != nil {
		t.Fatal(err)
	}
	feed, err := quickFeed(s.redis)
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, table.Run)
	testrun.Start(t, func(ctx context.Context) error { return feed.Run(ctx, table) })
	testrun.Eventually(t, "the table has its first snapshot", func() bool { return table.Ready() && !table.Check("a", "before").Allowed })
	if l := table.Latency(); l.Count != 0 {
		t.Errorf("%d of a snapshot are measured", l.Count)
	}
	block("behind")
	testrun.Eventually(t, "it is measured", func() bool { return table.Latency().Count == 1 })
	if l := table.Latency(); l.Sum < time.Second || table.Check("a", "behind").Allowed { // its event was a second ago
		t.Errorf("it took %v", l.Sum)
	}
	snapshots := feed.(*Feed).Stats().Snapshots
	s.flush()
	testrun.Eventually(t, "Redis is refilled, and the table follows", func() bool { return feed.(*Feed).Stats().Snapshots >= snapshots+stageShards })
	later := 0
	for ; table.Latency().Count < 2; later++ { // one may come with another snapshot
		uid := fmt.Sprint("later", later)
		block(uid)
		testrun.Eventually(t, "the next one is enforced", func() bool { return !table.Check("a", uid).Allowed })
	}
	if n := table.Latency().Count; n > 1+uint64(later) || table.Check("a", "before").Allowed {
		t.Errorf("%d are measured, of %d that came by the stream", n, 1+later)
	}
}
