package enforce

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A service that listens before the first snapshot allows everybody: WaitReady ends when all shards are
// there, and not before.
func TestWaitReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTableWith(t, Config{Shards: 3})
		wait := func(within time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			return table.WaitReady(ctx)
		}
		says := func(err error, want ...string) {
			t.Helper()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v does not wrap what ended the context", err)
			}
			for _, w := range want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("%v, want %q in it", err, w)
				}
			}
		}
		says(wait(time.Second), "shard 0 1 2 of 3", "no feed fills the table")
		table.FollowedBy(func() error { return errors.New("WRONGPASS") })
		table.Replace(1, nil)
		says(wait(time.Second), "shard 0 2 of 3", "WRONGPASS")
		table.FollowedBy(func() error { return nil })
		says(wait(time.Second), "the snapshot is under way")

		waited := make(chan error, 2)
		for range 2 {
			go func() { waited <- wait(time.Hour) }()
		}
		table.Replace(0, nil)
		synctest.Wait()
		if len(waited) > 0 {
			t.Error("it does not wait for the last shard")
		}
		table.Replace(2, nil)
		table.Replace(2, nil)
		for range 2 {
			if err := <-waited; err != nil {
				t.Error(err)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := table.WaitReady(ended); err != nil || !table.Ready() {
			t.Errorf("a table that is ready: %v", err)
		}
	})
}

// A table may learn how many shards there are, until it has had one.
func TestSetShards(t *testing.T) {
	table := newTableWith(t, Config{})
	if err := errors.Join(table.SetShards(1), table.SetShards(2)); err != nil || table.Shards() != 2 {
		t.Errorf("%d shards, %v", table.Shards(), err)
	}
	if table.SetShards(0) == nil {
		t.Error("none are accepted")
	}
	table.Replace(1, nil)
	if table.Ready() || table.SetShards(3) == nil || table.SetShards(2) != nil {
		t.Error("a table that follows takes another number, or not its own")
	}
	if table.Replace(0, nil); !table.Ready() {
		t.Error("not ready with all")
	}
}
