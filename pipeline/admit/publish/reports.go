package publish

import (
	"context"
	"sync"

	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

// report tells the other shards what the partition has forwarded, each heartbeat.
func (w *worker) report(ctx context.Context) {
	r := reports{w: w, of: make([]protocol.Reporter, w.p.cfg.Shards)}
	for retry.Sleep(ctx, w.p.cfg.Heartbeat) {
		if w.active() {
			r.round(ctx)
		}
	}
}

// reports go to the shards of other partitions.
type reports struct {
	w        *worker
	of       []protocol.Reporter // by shard
	progress protocol.Progress
	end      int64 // of the partition's events, that was read last
}

// round asks all shards at once, so that one that is away does not add up with others.
func (r *reports) round(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, errandTimeout)
	defer cancel()
	w := r.w
	if r.progress.Input < r.end {
		p, err := w.owner.Progress(ctx)
		if err != nil {
			return // the worker asks as well, and says it
		}
		r.progress = p
	}
	wanted := make([]bool, len(r.of))
	var asked sync.WaitGroup
	for shard := range r.of {
		if shard != w.shard {
			asked.Go(func() { wanted[shard] = r.tell(ctx, shard) })
		}
	}
	asked.Wait()
	r.find(ctx, wanted)
}

// tell reports to a shard, and tells whether the end of the partition's events is wanted for it.
func (r *reports) tell(ctx context.Context, shard int) (wanted bool) {
	w := r.w
	a, err := w.p.cfg.Redis.Report(ctx, shard, w.partition, r.of[shard].Forwarded(r.progress))
	switch {
	case err == nil:
		w.p.reports.Worked(w.reporterOf(shard))
		w.p.rules.epoch(shard, a.Epoch)
		return r.of[shard].Answered(&a)
	case ctx.Err() == nil:
		w.p.reports.Failed(w.reporterOf(shard), err)
	}
	return false
}

// find reads the end after all shards have answered: it is that of a later moment for each.
func (r *reports) find(ctx context.Context, wanted []bool) {
	some := false
	for _, is := range wanted {
		some = some || is
	}
	if !some {
		return
	}
	end, err := r.w.p.cfg.Ends.InputEnd(ctx, r.w.partition)
	for shard, is := range wanted {
		switch {
		case !is:
		case err != nil:
			r.of[shard].Failed()
		default:
			r.of[shard].Ended(end)
		}
	}
	if err == nil {
		r.end = end
	}
}

// reporterOf names the worker's reporter of a shard among those that an outage is about.
func (w *worker) reporterOf(shard int) int32 { return w.partition*int32(w.p.cfg.Shards) + int32(shard) }
