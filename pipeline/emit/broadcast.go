package emit

import (
	"sync"
	"sync/atomic"
)

// broadcast wakes all waiting goroutines. It costs one atomic read while there are none.
type broadcast struct {
	waiting atomic.Int32
	mu      sync.Mutex
	ch      chan struct{}
}

func (b *broadcast) enter() { b.waiting.Add(1) }
func (b *broadcast) leave() { b.waiting.Add(-1) }

// next returns the channel that the next broadcast closes. Call it between enter and leave.
func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) broadcast() {
	if b.waiting.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
