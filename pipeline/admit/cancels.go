package admit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

const (
	maxCancels    = 10_000
	cancelWorkers = 4 // of a shard
	cancelAgain   = 200 * time.Millisecond
	drainWithin   = 2 * time.Second
)

// cancels are permits to be given back. Each is tried until it is answered. Those of one shard don't wait
// for another one.
type cancels struct {
	mu     sync.Mutex
	queue  map[int][]cancel // by shard; -1 until the shards are known
	shards int
	n      int
	wake   chan struct{} // closed when there is something new, and replaced
	ended  func(n int)   // where nothing is given back any more: so many are left to the end of their hold; nil: it is

	done, lost atomic.Uint64
}

// cancel is one call.
type cancel struct {
	partition int32
	key       string
	ids       []string
}

func (c *cancels) init() { c.queue, c.wake = map[int][]cancel{}, make(chan struct{}) }

// add never blocks.
func (c *cancels) add(partition int32, key string, ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		c.ended(len(ids))
	}
	if c.ended != nil || c.n+len(ids) > maxCancels {
		c.lost.Add(uint64(len(ids)))
		return
	}
	c.put(cancel{partition, key, ids})
}

// put is add for one that had a place before. The lock is held.
func (c *cancels) put(one cancel) {
	c.n += len(one.ids)
	shard := -1
	if c.shards > 0 {
		shard = int(one.partition) % c.shards
	}
	c.queue[shard] = append(c.queue[shard], one)
	close(c.wake)
	c.wake = make(chan struct{})
}

func (c *cancels) stats() (done, lost uint64, waiting int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done.Load(), c.lost.Load(), c.n
}

// end says that nothing is given back any more, and what to do about permits that are.
func (c *cancels) end(ended func(n int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended = ended; ended != nil && c.n > 0 {
		ended(c.n)
	}
}

// use spreads what waits over so many shards.
func (c *cancels) use(shards int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shards == shards {
		return
	}
	c.shards = shards
	all := c.queue
	c.queue, c.n = map[int][]cancel{}, 0
	for _, list := range all {
		for _, one := range list {
			c.put(one)
		}
	}
}

// take takes the next one of a shard; otherwise wake tells when to look again.
func (c *cancels) take(shard int) (one cancel, ok bool, wake <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.queue[shard]
	if len(list) == 0 {
		return one, false, c.wake
	}
	one, c.queue[shard] = list[0], list[1:]
	if len(list) == 1 {
		delete(c.queue, shard)
	}
	c.n -= len(one.ids)
	return one, true, nil
}

// run gives permits back until ctx ends, and then what is left until giving does.
func (c *cancels) run(ctx, giving context.Context, b *book) {
	var running sync.WaitGroup
	defer running.Wait()
	for shard := 0; ; shard++ {
		shards := c.await(ctx, b, shard)
		if shards == 0 {
			return
		}
		for range cancelWorkers {
			running.Go(func() { c.work(ctx, giving, b, shard) })
		}
	}
}

// await waits until there are more than so many shards; it returns 0 when ctx ends.
func (c *cancels) await(ctx context.Context, b *book, more int) int {
	tick := time.NewTicker(cancelAgain)
	defer tick.Stop()
	for ended := false; ; {
		if p := b.current.Load(); p != nil && p.shards != nil {
			if c.use(p.shards.Shards); p.shards.Shards > more {
				return p.shards.Shards
			}
		}
		if ended {
			return 0
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			ended = true // and looks once more
		}
	}
}

func (c *cancels) work(ctx, giving context.Context, b *book, shard int) {
	for {
		one, ok, wake := c.take(shard)
		if !ok {
			select {
			case <-wake:
			case <-ctx.Done():
				if one, ok, _ = c.take(shard); !ok {
					return
				}
			}
		}
		if ok && !c.try(giving, b.current.Load(), one) {
			c.mu.Lock()
			c.put(one)
			c.mu.Unlock()
			select {
			case <-time.After(cancelAgain):
			case <-giving.Done():
				return
			}
		}
	}
}

func (c *cancels) try(ctx context.Context, p *page, one cancel) bool {
	limited, stop := context.WithTimeout(ctx, protocol.AnswerWithin.Duration())
	defer stop()
	if _, err := p.shards.Cancel(limited, one.partition, one.key, one.ids); err != nil {
		return false
	}
	c.done.Add(uint64(len(one.ids)))
	return true
}
