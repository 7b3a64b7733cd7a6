package blocklist

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/store"
	"github.com/tallygate/tallygate/pipeline/blocklist/publish"
)

// between calls do once, before the n-th command of this name.
type between struct {
	name string
	n    int64
	seen atomic.Int64
	do   func()
}

func (b *between) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b *between) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == b.name && b.seen.Add(1) == b.n {
			b.do()
		}
		return next(ctx, cmd)
	}
}

// TestASnapshotDuringARestart: a cursor of HSCAN means something to the process that gave it only.
// One that restarted from its append-only file has the same meta, and a scan that went on in it
// missed entries: the table dropped them.
func TestASnapshotDuringARestart(t *testing.T) {
	server := servers.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	for round := range 3 {
		restart := &between{name: "hscan", n: 3, do: func() { server.Kill(); server.Start() }}
		dial := func(t testing.TB, network *servers.Network) redis.UniversalClient {
			client := single(server.Addr())(t, network)
			if network != nil {
				client.AddHook(restart)
			}
			return client
		}
		s := newStage(t, dial)
		_, stop := s.publisher(nil)
		s.block(rig.UIDs("a", 5000)...)
		s.reached()
		s.eventually("the shards are complete", func() bool { return s.complete() })
		stop()
		s.feed(quickFeed)
		s.eventually("the scan was interrupted, and taken", func() bool {
			return restart.seen.Load() >= restart.n && s.sink.Replaced() >= stageShards
		})
		if got, want := len(s.sink.Text()), len(s.truth); got != want {
			t.Errorf("round %d: %d blocks are held, want all %d", round, got, want)
		}
	}
}

// hand is a blocklist of one partition that a test writes by hand, and a feed that it moves by
// hand.
type hand struct {
	*stage
	writes *store.Store
	at     int64 // the next offset
	feed   *shardFeed
	box    *mailbox
	held   *rig.Memory
}

func newHand(t *testing.T) *hand { return newHandOn(t, miniredis.RunT(t).Addr()) }

func newHandOn(t *testing.T, addr string) *hand {
	h := &hand{stage: newStage(t, single(addr)), held: rig.NewMemory()}
	h.writes = rig.NewStore(t, h.redis)
	h.writes.StreamLength, h.writes.Grace, h.writes.BeatMillis = 100, 0, 0
	f, err := NewFeed(FeedConfig{Redis: h.redis, Logger: rig.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	r, m, leave := join(f, &f.cfg, h.held)
	t.Cleanup(leave)
	h.feed, h.box = r.shards[0], m.boxes[0]
	return h
}

// blocks publishes blocks, and with them a heartbeat that says: up to now.
func (h *hand) blocks(uids ...string) {
	records := make([]publish.Record, len(uids))
	for i, uid := range uids {
		records[i] = rig.Record(rig.Block(uid, h.at+int64(i)+1, time.Hour))
	}
	h.apply(event.FromTime(time.Now()), records...)
}

func (h *hand) apply(applied event.Micros, records ...publish.Record) {
	h.t.Helper()
	b := store.Batch{Start: h.at, Next: h.at + int64(len(records)), Applied: applied, Records: records}
	if _, ok, err := h.writes.Apply(h.t.Context(), b); err != nil || !ok {
		h.t.Fatalf("not applied: %v", err)
	}
	h.at = b.Next
}

// follow takes what the stream has.
func (h *hand) follow() error {
	h.t.Helper()
	entries, err := h.feed.read(h.t.Context(), h.feed.place, -1)
	if err != nil {
		h.t.Fatal(err)
	}
	err = h.feed.take(h.t.Context(), entries)
	h.tell()
	if errors.Is(err, errComplete) {
		h.feed.linked = true
		h.feed.letWait()
	}
	return err
}

// tell tells the sink what there is for it.
func (h *hand) tell() {
	for h.box.next() {
	}
}

// scan takes a snapshot.
func (h *hand) scan() error {
	err := h.feed.begin(h.t.Context(), &scan{})
	for err == nil && h.feed.scan != nil {
		err = h.feed.goOn(h.t.Context())
	}
	h.feed.abandon()
	h.tell()
	if errors.Is(err, errLost) && h.feed.follows {
		h.feed.lost(err)
	}
	return err
}

// snapshot takes one that must be complete, or must not.
func (h *hand) snapshot(complete bool) {
	h.t.Helper()
	if err := h.scan(); err != nil || h.feed.complete != complete {
		h.t.Fatalf("the snapshot: %v, complete: %v, want %v", err, h.feed.complete, complete)
	}
}

// TestABackupIsRestoredBeforeTheSnapshot: a feed that had lost its place was told by a heartbeat
// that the blocklist was complete again. Before it looked, a backup was restored that was complete
// as of the loss, but had not all that the feed had followed meanwhile; and the feed let go whoever
// was not in it.
func TestABackupIsRestoredBeforeTheSnapshot(t *testing.T) {
	h := newHand(t)
	h.blocks("before")
	h.snapshot(true)
	h.feed.lost(errLost)
	h.snapshot(false)
	h.blocks() // now it is complete
	restore := h.snapshotOfRedis()
	h.blocks("meanwhile")
	if err := h.follow(); !errors.Is(err, errComplete) || !h.held.Has("uid=meanwhile|r") {
		t.Fatalf("what came by the stream: %v, %v", err, h.held.Text())
	}
	restore()
	if err := h.scan(); !errors.Is(err, errLost) {
		t.Errorf("the snapshot of what was restored: %v", err)
	}
	h.snapshot(false)
	h.at = 1
	h.blocks("meanwhile", "after") // it is filled again
	if err := h.follow(); !errors.Is(err, errComplete) {
		t.Errorf("when it is filled again: %v", err)
	}
	h.snapshot(true)
	if len(h.held.Text()) != 3 || len(h.held.Dropped()) > 0 {
		t.Errorf("at the end: %v, dropped %v", h.held.Text(), h.held.Dropped())
	}
}

// TestARemovalDuringARefillIsAnOldOne: what removes an entry has no seq. While the blocklist is
// filled again, it may be older than the block that the feed has, and is followed by that; and the
// feed let the user go meanwhile.
func TestARemovalDuringARefillIsAnOldOne(t *testing.T) {
	h := newHand(t)
	h.blocks("u", "v")
	restore := h.snapshotOfRedis()
	h.apply(0, rig.Tombstone(rig.Block("u", 0, 0)))
	h.blocks("u")
	h.snapshot(true)
	restore()
	h.feed.lost(errLost)
	h.snapshot(false)
	h.at = 2
	// The second is a new one.
	h.apply(0, rig.Tombstone(rig.Block("u", 0, 0)), rig.Tombstone(rig.Block("v", 0, 0)))
	if err := h.follow(); err != nil || !h.held.Has("uid=u|r") {
		t.Fatalf("the old removal: %v, %v", err, h.held.Text())
	}
	h.blocks("u")
	if err := h.follow(); !errors.Is(err, errComplete) {
		t.Fatal(err)
	}
	h.snapshot(true)
	if !h.held.Has("uid=u|r") || h.held.Has("uid=v|r") {
		t.Errorf("at the end: %v", h.held.Text())
	}
	h.apply(0, rig.Tombstone(rig.Block("u", 0, 0)))
	if err := h.follow(); err != nil || h.held.Has("uid=u|r") {
		t.Errorf("a removal when all is complete: %v, %v", err, h.held.Text())
	}
}

// complete reports whether Redis says that it has all partitions.
func (s *stage) complete() bool {
	for shard := range stageShards {
		m, found, err := layout.ReadMeta(context.Background(), s.redis, layout.KeysOf("tallygate", shard))
		if err != nil || !found || m.Applied == 0 {
			return false
		}
	}
	return true
}

// TestASnapshotWhileMoreIsWrittenThanTheStreamKeeps: the stream was read when the hash had been,
// and what it had lost by then was lost; so was each next snapshot, for as long as much was
// written.
func TestASnapshotWhileMoreIsWrittenThanTheStreamKeeps(t *testing.T) {
	h := newHandOn(t, servers.StartRedis(t).Addr()) // miniredis has one page, however long
	h.blocks(rig.UIDs("a", 3*readCount)...)
	h.blocks(rig.UIDs("b", 3*readCount)...)
	round := 0
	h.redis.AddHook(&every{name: "hscan", do: func() {
		round++
		h.blocks(rig.UIDs(fmt.Sprint("meanwhile", round, "-"), 90)...) // the stream keeps 100
		h.apply(0, rig.Tombstone(rig.Block(fmt.Sprint("a", round), 0, 0)), rig.Record(rig.Clearing(fmt.Sprint("b", round), h.at+9)))
	}})
	h.snapshot(true)
	if round < 4 {
		t.Fatalf("%d pages, want some", round)
	}
	if got, want := len(h.held.Text()), 6*readCount+90*round-2*round; got != want || h.held.Replaced() != 1 {
		t.Errorf("%d are held after %d snapshots, want %d", got, h.held.Replaced(), want)
	}
	for i := 1; i <= round; i++ {
		if h.held.Has(fmt.Sprintf("uid=a%d|r", i)) || h.held.Has(fmt.Sprintf("uid=b%d|r", i)) || !h.held.Has(fmt.Sprintf("uid=meanwhile%d-89|r", i)) {
			t.Errorf("what happened before page %d is not held", i)
		}
	}
}

// every calls do before each command of this name.
type every struct {
	name string
	do   func()
}

func (e *every) DialHook(next redis.DialHook) redis.DialHook { return next }

func (e *every) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (e *every) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == e.name {
			e.do()
		}
		return next(ctx, cmd)
	}
}

// A block without an end is in Redis and in the table as any other, also when Redis is filled anew.
func TestABlockForeverIsFilledAgain(t *testing.T) {
	for range 2 {
		h := newHand(t)
		v := rig.Block("u", 1, time.Hour)
		v.Until = event.Forever
		h.apply(event.FromTime(time.Now()), rig.Record(v))
		h.blocks("v") // what removes entries that are over comes with each batch
		h.snapshot(true)
		if !h.held.Has("uid=u|r") || !h.held.Has("uid=v|r") {
			t.Errorf("held are %v", h.held.Text())
		}
	}
}
