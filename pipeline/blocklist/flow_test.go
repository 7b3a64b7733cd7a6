package blocklist

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/publish"
	"github.com/tallygate/tallygate/verdict"
)

// newWatchedStage is newStage with a table that is watched, a publisher, a feed, and traffic that
// flows until the test is over or calm is called.
func newWatchedStage(t *testing.T, dial dialer, change func(*publish.Config)) (s *stage, calm func()) {
	seed := testrun.Seed(t)
	s = newStage(t, dial)
	s.watch = newWatch(t)
	s.publisher(change)
	s.feed(quickFeed)
	stopWatch := testrun.Start(t, s.watch.run)
	t.Cleanup(func() { stopWatch(); t.Log(s.watch) })
	r := rand.New(rand.NewPCG(seed, 2))
	calm = testrun.Start(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			s.anything(r)
			retry.Sleep(ctx, time.Duration(r.IntN(4))*time.Millisecond)
		}
		return nil
	})
	return s, calm
}

// anything publishes something: short blocks, long ones, ends.
func (s *stage) anything(r *rand.Rand) {
	uid := fmt.Sprint("u", r.IntN(400))
	s.seq++
	switch n := r.IntN(10); {
	case n < 4:
		s.publish(uid, rig.Block(uid, s.seq, 50*time.Millisecond+rand.N(3*time.Second)), false)
	case n < 8:
		s.publish(uid, rig.Block(uid, s.seq, time.Hour+rand.N(time.Hour)), false)
	case n < 9:
		s.publish(uid, rig.Clearing(uid, s.seq), false)
	default:
		s.publish(uid, rig.Block(uid, s.seq, 0), true)
	}
}

// tableEqualsTruth compares what the enforcer's table denies with what was published.
func (s *stage) tableEqualsTruth() {
	s.t.Helper()
	got := map[string]verdict.Verdict{}
	all, _ := s.watch.table.List("", "", 1<<30)
	for _, v := range all {
		got[string(verdict.AppendRecordKey(nil, v))] = *v
	}
	if !slices.Equal(rig.Text(alive(got)), rig.Text(alive(s.truth))) {
		s.t.Errorf("the table holds %d blocks that are not the %d published", len(alive(got)), len(alive(s.truth)))
	}
}
