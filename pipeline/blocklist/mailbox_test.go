package blocklist

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/verdict"
)

// stubborn is a Sink whose Apply, once it is told to hang, doesn't return until hold is closed.
type stubborn struct {
	*rig.Memory
	hold          chan struct{}
	hang, hanging atomic.Bool
}

func (s *stubborn) Apply(shard int, changes []verdict.Verdict) {
	if s.hang.Load() {
		s.hanging.Store(true)
		<-s.hold
	}
	s.Memory.Apply(shard, changes)
}

// TestASinkThatDoesNotReturnHoldsUpNoOther: sinks were told one after another, so one that hung
// stopped all feeds of its process.
func TestASinkThatDoesNotReturnHoldsUpNoOther(t *testing.T) {
	defer func(n int) { leastRoom = n }(leastRoom)
	leastRoom = 50
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka := rig.NewBroker(t, 1)
		p, _ := startPublisher(t, kafka, client, nil)
		p.Own(0)
		slow, quick := &stubborn{Memory: rig.NewMemory(), hold: make(chan struct{})}, rig.NewMemory()
		release := sync.OnceFunc(func() { close(slow.hold) })
		slowFeed, _ := startFeed(t, client, slow, nil)
		quickFeed, _ := startFeed(t, client, quick, nil)
		t.Cleanup(release) // before the feeds are stopped: a test that fails must end, too
		rig.Offer(p, kafka, rig.Record(rig.Block("a", 1, time.Hour)))
		testrun.Eventually(t, "both follow", func() bool { return slow.Has("uid=a|r") && quick.Has("uid=a|r") })

		slow.hang.Store(true)
		rig.Offer(p, kafka, rig.Record(rig.Block("b", 2, time.Hour)))
		testrun.Eventually(t, "one hangs", slow.hanging.Load)
		for i := range 100 { // more than wait for it
			rig.Offer(p, kafka, rig.Record(rig.Block(fmt.Sprint(i), int64(i+3), time.Hour)))
			testrun.Eventually(t, "the other one has it", func() bool { return quick.Has(fmt.Sprintf("uid=%d|r", i)) })
		}
		rig.Offer(p, kafka, rig.Tombstone(rig.Block("a", 0, 0)))
		testrun.Eventually(t, "the other one has all", func() bool { return !quick.Has("uid=a|r") })
		late := rig.NewMemory()
		startFeed(t, client, late, nil)
		testrun.Eventually(t, "one that comes late has all", func() bool { return len(late.Text()) == 101 })
		testrun.Eventually(t, "the slow one has lost its place", func() bool { return slowFeed.Stats().Lost == 1 })
		if s := slowFeed.Stats(); s.Snapshots != 1 {
			t.Errorf("while it hangs: %+v, want no snapshot that waits for it", s)
		}
		release()
		testrun.Eventually(t, "it gets a snapshot when it returns", func() bool { return slowFeed.Stats().Snapshots == 2 && len(slow.Text()) == 101 })
		if s := quickFeed.Stats(); s.Snapshots != 1 || s.Lost != 0 {
			t.Errorf("the quick one: %+v, want nothing lost", s)
		}
	})
}

// TestASnapshotInAMailboxIsTheOnlyOne: another scan waits until all have taken the last one out, or
// left.
func TestASnapshotInAMailboxIsTheOnlyOne(t *testing.T) {
	h := newHand(t)
	h.blocks("a")
	if err := h.feed.begin(t.Context(), &scan{}); err != nil {
		t.Fatal(err)
	}
	held := h.feed.scan
	if !scanning.take(held) {
		t.Fatal("a scan of another test is under way")
	}
	for h.feed.scan != nil {
		if err := h.feed.goOn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if scanning.take(&scan{}) {
		t.Error("another scan began while the snapshot waited in a mailbox")
	}
	h.box.close()
	next := &scan{}
	if !scanning.take(next) {
		t.Error("no scan may begin though the snapshot is unused")
	}
	scanning.release(next)
}
