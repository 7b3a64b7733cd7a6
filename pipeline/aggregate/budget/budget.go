// Package budget bounds the memory for events on their way through an instance: what it has fetched
// and not counted, and what it has counted and not yet sent.
//
// What comes in waits for memory, and what goes out never does. It is only counted, and whoever makes
// it stops between two records while there is too much of it. So what is held always drains: batches
// are counted without memory for more batches, and what follows from them leaves for Kafka.
package budget

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Kind names what memory is held for.
type Kind int

// The kinds.
const (
	Fetched      Kind = iota // as it came, compressed
	Decompressed             // batches that are not counted
	Packs                    // gathered for another partition, and not sent
	Forwards                 // sent to other partitions, and not acknowledged
	DeadLetters              // not acknowledged
	Audit                    // not acknowledged
	Kinds                    // how many there are
)

var names = [Kinds]string{"fetched", "decompressed", "packs", "forwards", "dead_letters", "audit"}

// String is the kind's label in metrics.
func (k Kind) String() string { return names[k] }

// Budget is the bound of an instance. It may be used by any goroutine.
type Budget struct {
	limit   int64
	held    [Kinds]atomic.Int64
	waiting atomic.Int32 // length of queue, for those that hold no lock

	mu     sync.Mutex
	queue  []*waiter // oldest first
	claims int64     // that are open
}

// waiter is a claim that waits for memory.
type waiter struct {
	claim *Claim
	bytes int64
	given chan struct{} // closed when it has them
}

// New returns a budget of so many bytes.
func New(limit int64) *Budget { return &Budget{limit: limit} }

// Limit bounds the bytes that may be held. A single batch that takes more is let through alone.
func (b *Budget) Limit() int64 { return b.limit }

// Held counts the bytes that are held of a kind.
func (b *Budget) Held(k Kind) int64 { return b.held[k].Load() }

// FetchedLimit is the part of the whole that bounds Fetched. With ForwardsLimit and AuxLimit it leaves three
// eighths for decompressed batches in any case.
func (b *Budget) FetchedLimit() int64 { return b.limit / 4 }

// ForwardsLimit is the part that bounds Packs and Forwards.
func (b *Budget) ForwardsLimit() int64 { return b.limit / 4 }

// AuxLimit is the part that bounds DeadLetters and Audit.
func (b *Budget) AuxLimit() int64 { return b.limit / 8 }

// Add notes bytes that are held of a kind, or given back if they are negative. It does not wait.
func (b *Budget) Add(k Kind, bytes int64) {
	b.held[k].Add(bytes)
	if bytes < 0 && b.waiting.Load() > 0 {
		b.mu.Lock()
		b.serve()
		b.mu.Unlock()
	}
}

// serve gives memory to those that wait, in their order. b is locked.
func (b *Budget) serve() {
	for len(b.queue) > 0 && b.fits(b.queue[0].bytes) {
		w := b.queue[0]
		b.queue = slices.Delete(b.queue, 0, 1)
		b.waiting.Store(int32(len(b.queue)))
		b.take(w.claim, w.bytes)
		close(w.given)
	}
}

// fits reports whether there is room for a batch. If no other one is held, there is. b is locked.
func (b *Budget) fits(bytes int64) bool {
	others := int64(0)
	for k := range Kinds {
		others += b.held[k].Load()
	}
	return b.held[Decompressed].Load() == 0 || others+bytes <= b.limit
}

// take gives a claim bytes. b is locked.
func (b *Budget) take(c *Claim, bytes int64) {
	c.held += bytes
	b.held[Decompressed].Add(bytes)
}

// Claim decompresses batches for one reader. Its methods are for one goroutine, but for Release.
type Claim struct {
	of    *Budget
	freed chan struct{} // holds one after Release

	held int64 // under the budget's lock
}

// NewClaim returns a claim that has nothing. Close it.
func (b *Budget) NewClaim() *Claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claims++
	return &Claim{of: b, freed: make(chan struct{}, 1)}
}

// Close takes the claim off those that share the budget. What it holds stays held until Release.
func (c *Claim) Close() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.claims--
}

// Share returns the bytes that a claim may hold before it has to wait for itself: a partition that is stuck must not
// hold what others need.
func (c *Claim) Share() int64 {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.share()
}

func (c *Claim) share() int64 { return c.of.limit * 3 / 8 / max(1, c.of.claims) }

// within reports whether the claim holds less than its share. The budget is locked.
func (c *Claim) within() bool { return c.held == 0 || c.held < c.share() }

// Try reserves bytes if it need not wait.
func (c *Claim) Try(bytes int64) bool {
	b := c.of
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) > 0 || !c.within() || !b.fits(bytes) {
		return false
	}
	b.take(c, bytes)
	return true
}

// Reserve waits until there is room for so many bytes, and takes them. The caller holds nothing that
// is given back only after that.
func (c *Claim) Reserve(ctx context.Context, bytes int64) error {
	if err := c.awaitShare(ctx); err != nil {
		return err
	}
	b := c.of
	b.mu.Lock()
	if len(b.queue) == 0 && b.fits(bytes) {
		b.take(c, bytes)
		b.mu.Unlock()
		return nil
	}
	w := &waiter{claim: c, bytes: bytes, given: make(chan struct{})}
	b.queue = append(b.queue, w)
	b.waiting.Store(int32(len(b.queue)))
	b.serve() // what was given back before waiting was set
	b.mu.Unlock()
	select {
	case <-w.given:
		return nil
	case <-ctx.Done():
		c.abandon(w)
		return context.Cause(ctx)
	}
}

// awaitShare waits until the claim holds less than its share.
func (c *Claim) awaitShare(ctx context.Context) error {
	for {
		c.of.mu.Lock()
		ok := c.within()
		c.of.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-c.freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// abandon gives up to wait.
func (c *Claim) abandon(w *waiter) {
	b := c.of
	b.mu.Lock()
	i := slices.Index(b.queue, w)
	if i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
		b.waiting.Store(int32(len(b.queue)))
		b.serve() // a smaller one may have been behind it
	}
	b.mu.Unlock()
	if i < 0 { // it was served just now
		c.Release(w.bytes)
	}
}

// Release gives bytes back.
func (c *Claim) Release(bytes int64) {
	if bytes == 0 {
		return
	}
	b := c.of
	b.mu.Lock()
	c.held -= bytes
	b.held[Decompressed].Add(-bytes)
	b.serve()
	b.mu.Unlock()
	select {
	case c.freed <- struct{}{}:
	default:
	}
}
