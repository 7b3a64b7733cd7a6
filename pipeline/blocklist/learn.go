package blocklist

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/internal/failure"
)

// learning asks for the blocklist's number of shards, before all else.
type learning struct {
	failure.Outages
	answered atomic.Bool // Redis has
}

var errNoSetShards = errors.New("blocklist: the sink has no method SetShards(int) error: give FeedConfig.Shards the blocklist's number")

// shards asks the blocklist how many shards it has, until it says so or ctx ends, and tells the sink.
// One without a number was written by older programs, which had one shard.
func (l *learning) shards(ctx context.Context, cfg *FeedConfig, sink Sink) (n int, err error) {
	to, ok := sink.(interface{ SetShards(n int) error })
	if !ok {
		return 0, errNoSetShards
	}
	defer l.Gone(0)
	pause, keys := failure.NewPause(), layout.KeysOf(cfg.Prefix, 0)
	for {
		m, found, err := layout.ReadMeta(ctx, cfg.Redis, keys)
		if err == nil {
			l.answered.Store(true)
			l.Worked(0)
		}
		switch {
		case ctx.Err() != nil:
			return 0, nil
		case err == nil && found:
			n = max(m.Shards, 1)
			return n, to.SetShards(n)
		case err == nil:
			err = fmt.Errorf("%s: %w", keys.Verdicts, failure.ErrNothing)
		}
		l.Failed(0, err)
		pause.Wait(ctx)
	}
}
