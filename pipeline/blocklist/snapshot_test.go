package blocklist

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/servers"
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
