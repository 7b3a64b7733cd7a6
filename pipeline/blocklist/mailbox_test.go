package blocklist

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/verdict"
)

// stubborn is a Sink whose Apply, once it is told to hang, doesn't return until hold is closed.
type stubborn struct {
	*memory
	hold          chan struct{}
	hang, hanging atomic.Bool
}

func (s *stubborn) Apply(shard int, changes []verdict.Verdict) {
	if s.hang.Load() {
		s.hanging.Store(true)
		<-s.hold
	}
	s.memory.Apply(shard, changes)
}

// TestASinkThatDoesNotReturnHoldsUpNoOther: sinks were told one after another, so one that hung stopped all feeds of its process.
func TestASinkThatDoesNotReturnHoldsUpNoOther(t *testing.T) {
	defer func(n int) { leastRoom = n }(leastRoom)
	leastRoom = 50
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka := newBroker(t, 1)
		p, _ := kafka.publisher(client, nil)
		p.Own(0)
		slow, quick := &stubborn{memory: newMemory(), hold: make(chan struct{})}, newMemory()
		release := sync.OnceFunc(func() { close(slow.hold) })
		slowFeed, _ := startFeed(t, client, slow, nil)
		quickFeed, _ := startFeed(t, client, quick, nil)
		t.Cleanup(release) // before the feeds are stopped: a test that fails must end, too
		offer(p, kafka, record(block("a", 1, time.Hour)))
		eventually(t, "both follow", func() bool { return slow.has("uid=a|r") && quick.has("uid=a|r") })

		slow.hang.Store(true)
		offer(p, kafka, record(block("b", 2, time.Hour)))
		eventually(t, "one hangs", slow.hanging.Load)
		for i := range 100 { // more than wait for it
			offer(p, kafka, record(block(fmt.Sprint(i), int64(i+3), time.Hour)))
			eventually(t, "the other one has it", func() bool { return quick.has(fmt.Sprintf("uid=%d|r", i)) })
		}
		offer(p, kafka, tombstone(block("a", 0, 0)))
		eventually(t, "the other one has all", func() bool { return !quick.has("uid=a|r") })
		late := newMemory()
		startFeed(t, client, late, nil)
		eventually(t, "one that comes late has all", func() bool { return len(late.text()) == 101 })
		eventually(t, "the slow one has lost its place", func() bool { return slowFeed.Stats().Lost == 1 })
		if s := slowFeed.Stats(); s.Snapshots != 1 {
			t.Errorf("while it hangs: %+v, want no snapshot that waits for it", s)
		}
		release()
		eventually(t, "it gets a snapshot when it returns", func() bool { return slowFeed.Stats().Snapshots == 2 && len(slow.text()) == 101 })
		if s := quickFeed.Stats(); s.Snapshots != 1 || s.Lost != 0 {
			t.Errorf("the quick one: %+v, want nothing lost", s)
		}
	})
}

// TestASnapshotInAMailboxIsTheOnlyOne: another scan waits until all have taken the last one out, or left.
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
		t.Error("no scan may begin though nobody has the snapshot any more")
	}
	scanning.release(next)
}
