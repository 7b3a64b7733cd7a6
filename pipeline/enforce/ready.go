package enforce

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
)

// readiness is the part of a Table that knows what its first snapshot waits for.
type readiness struct {
	progress *progress
	feed     atomic.Pointer[func() error]
}

// WaitReady waits until the table has had a snapshot of every shard. Until then it knows no verdict,
// and allows what Config.OnStale does not deny: call it before a service takes requests, with a bound.
// It returns nil at once when the table is ready. When ctx ends first, its error says which shards are
// missing and why, as far as the feed knows, and wraps what ended ctx.
func (r *readiness) WaitReady(ctx context.Context) error {
	select {
	case <-r.progress.full:
		return nil
	default:
	}
	select {
	case <-r.progress.full:
		return nil
	case <-ctx.Done():
	}
	missing := fmt.Sprint(r.progress.missing())
	err := fmt.Errorf("enforce: there is no snapshot yet of shard %s of %d", strings.Trim(missing, "[]"), r.progress.count())
	return fmt.Errorf("%w: %w: %w", err, r.why(), context.Cause(ctx))
}

var (
	errNoFeed   = errors.New("no feed fills the table: run a blocklist.Feed with it")
	errSnapshot = errors.New("the feed has reached Redis, and the snapshot is under way")
)

func (r *readiness) why() error {
	feed := r.feed.Load()
	if feed == nil {
		return errNoFeed
	}
	if err := (*feed)(); err != nil {
		return err
	}
	return errSnapshot
}

// FollowedBy tells the table what to ask why it has no snapshot yet; nil is that it is on its way. A
// feed calls it.
func (r *readiness) FollowedBy(why func() error) { r.feed.Store(&why) }

// SetShards is for a feed that has learned the blocklist's number of shards. It is an error once the
// table has had a snapshot of any.
func (r *readiness) SetShards(n int) error {
	had := r.progress.count() - len(r.progress.missing())
	switch {
	case n == r.progress.count():
		return nil
	case n < 1:
		return fmt.Errorf("enforce: %d shards, want at least 1", n)
	case had > 0:
		return fmt.Errorf("enforce: the table follows a blocklist of %d shards and cannot follow one of %d: make another table", r.progress.count(), n)
	}
	r.progress.shards.Store(newShards(n))
	return nil
}
