package verdictlog

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
)

// Owned are the workers of the partitions that this process owns. Make it with NewOwned.
type Owned[W comparable] struct {
	changed chan struct{}

	mu      sync.Mutex
	workers map[int32]W
}

// NewOwned returns one without partitions.
func NewOwned[W comparable]() *Owned[W] {
	return &Owned[W]{changed: make(chan struct{}, 1), workers: map[int32]W{}}
}

// Own makes a worker of a partition that has none. It never blocks.
func (o *Owned[W]) Own(partition int32, make func() W) {
	o.mu.Lock()
	if _, ok := o.workers[partition]; !ok {
		o.workers[partition] = make()
	}
	o.mu.Unlock()
	o.wake()
}

// Disown ends a partition's worker. It never blocks.
func (o *Owned[W]) Disown(partition int32) {
	o.mu.Lock()
	delete(o.workers, partition)
	o.mu.Unlock()
	o.wake()
}

func (o *Owned[W]) wake() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// Of returns a partition's worker; W's zero value when there is none.
func (o *Owned[W]) Of(partition int32) W {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.workers[partition]
}

// All returns the workers in the order of their partitions.
func (o *Owned[W]) All() []W {
	o.mu.Lock()
	defer o.mu.Unlock()
	partitions := slices.SortedFunc(maps.Keys(o.workers), cmp.Compare)
	all := make([]W, len(partitions))
	for i, partition := range partitions {
		all[i] = o.workers[partition]
	}
	return all
}

// Run runs each worker in a goroutine, as long as it is one of All, until ctx ends. It returns when
// all have returned.
func (o *Owned[W]) Run(ctx context.Context, run func(context.Context, W)) {
	var running sync.WaitGroup
	defer running.Wait()
	stop := map[W]context.CancelFunc{}
	for {
		all := o.All()
		for w, cancel := range stop {
			if !slices.Contains(all, w) {
				cancel()
				delete(stop, w)
			}
		}
		for _, w := range all {
			if stop[w] != nil {
				continue
			}
			var wctx context.Context
			wctx, stop[w] = context.WithCancel(ctx)
			running.Go(func() { run(wctx, w) })
		}
		select {
		case <-ctx.Done():
			return
		case <-o.changed:
		}
	}
}
