package blocklist

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/servers"
	"github.com/tallygate/tallygate/pipeline/event"
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

// TestASnapshotDuringARestart: a cursor of HSCAN means something to the process that gave it only. One that restarted
// from its append-only file has the same meta, and a scan that went on in it missed entries: the table dropped them.
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
		s.block(uids("a", 5000)...)
		s.reached()
		s.eventually("the shards are complete", func() bool { return s.complete() })
		stop()
		s.feed(quickFeed)
		s.eventually("the scan was interrupted, and taken", func() bool {
			s.sink.mu.Lock()
			defer s.sink.mu.Unlock()
			return restart.seen.Load() >= restart.n && s.sink.replaced >= stageShards
		})
		if got, want := len(s.sink.text()), len(s.truth); got != want {
			t.Errorf("round %d: %d blocks are held, want all %d", round, got, want)
		}
	}
}

// TestABackupIsRestoredBeforeTheSnapshot: a feed that had lost its place was told by a heartbeat that the blocklist was complete
// again. Before it looked, a backup was restored that was complete as of the loss, but had not all that the feed had
// followed meanwhile; and the feed let go whoever was not in it.
func TestABackupIsRestoredBeforeTheSnapshot(t *testing.T) {
	s := newStage(t, single(miniredis.RunT(t).Addr()))
	redis := &store{client: s.redis, prefix: "tallygate", partitions: 1, shards: 1, streamLen: 100, bad: func(_ Record, err error) { t.Error(err) }}
	at := int64(0)
	publish := func(uids ...string) { // each with a heartbeat that says: up to now
		t.Helper()
		b := batch{start: at, next: at + int64(len(uids)), applied: event.FromTime(time.Now())}
		for _, uid := range uids {
			at++
			b.records = append(b.records, record(block(uid, at, time.Hour)))
		}
		if _, ok, err := redis.apply(t.Context(), b); err != nil || !ok {
			t.Fatalf("not applied: %v", err)
		}
	}
	sink := newMemory()
	f := &shardFeed{f: &Feed{cfg: FeedConfig{Redis: s.redis, Logger: quiet()}}, keys: shardKeys("tallygate", 0), sink: sink, floor: 1}
	follow := func() error {
		entries, err := f.read(t.Context(), f.place, -1)
		if err != nil {
			t.Fatal(err)
		}
		return f.take(t.Context(), entries)
	}
	publish("before")
	if err := f.snapshot(t.Context()); err != nil || !f.complete {
		t.Fatalf("the first snapshot: %v, complete: %v", err, f.complete)
	}
	f.lost(errLost)
	if err := f.snapshot(t.Context()); err != nil || f.complete {
		t.Fatalf("after the loss: %v, complete: %v", err, f.complete)
	}
	publish() // now it is complete
	restore := s.snapshotOfRedis()
	publish("meanwhile")
	if err := follow(); !errors.Is(err, errComplete) || !sink.has("uid=meanwhile|r") {
		t.Fatalf("what came by the stream: %v, %v", err, sink.text())
	}
	restore()
	if err := f.snapshot(t.Context()); !errors.Is(err, errLost) {
		t.Errorf("the snapshot of what was restored: %v", err)
	}
	if err := f.snapshot(t.Context()); err != nil || f.complete || !sink.has("uid=meanwhile|r") {
		t.Errorf("the next one: %v, complete: %v, %v", err, f.complete, sink.text())
	}
	at = 1
	publish("meanwhile", "after") // it is filled again
	if err := follow(); !errors.Is(err, errComplete) {
		t.Errorf("when it is filled again: %v", err)
	}
	if err := f.snapshot(t.Context()); err != nil || !f.complete || len(sink.text()) != 3 || len(sink.dropped) > 0 {
		t.Errorf("at the end: %v, complete: %v, %v, dropped %v", err, f.complete, sink.text(), sink.dropped)
	}
}

// complete reports whether Redis says that it has all partitions.
func (s *stage) complete() bool {
	for shard := range stageShards {
		m, found, err := readMeta(context.Background(), s.redis, shardKeys("tallygate", shard))
		if err != nil || !found || m.applied == 0 {
			return false
		}
	}
	return true
}
