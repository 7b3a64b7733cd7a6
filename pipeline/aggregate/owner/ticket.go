package owner

import (
	"context"
	"sync"
)

// ticket counts the auxiliary records of a partition that are not acknowledged: those sent before
// the last cut, and those after it. The zero value is ready to use.
type ticket struct {
	mu    sync.Mutex
	open  [2]int64
	gen   int // new records count in open[gen]
	err   error
	moved chan struct{} // closed at the next acknowledgement; nil while none waits
}

// ticketMark is attached to a record, and returns with its acknowledgement.
type ticketMark struct {
	ticket *ticket
	gen    int
}

func (t *ticket) send() ticketMark {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[t.gen]++
	return ticketMark{t, t.gen}
}

// cut starts a new generation, and returns the old one. The generation before that must be
// acknowledged.
func (t *ticket) cut() (gen int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	gen, t.gen = t.gen, 1-t.gen
	return gen
}

func (m ticketMark) acked(err error) {
	t := m.ticket
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[m.gen]--
	if t.err == nil {
		t.err = err
	}
	if t.moved != nil {
		close(t.moved)
		t.moved = nil
	}
}

// wait returns when a generation is acknowledged.
func (t *ticket) wait(ctx context.Context, gen int) error {
	for {
		t.mu.Lock()
		if t.err != nil || t.open[gen] == 0 {
			err := t.err
			t.mu.Unlock()
			return err
		}
		if t.moved == nil {
			t.moved = make(chan struct{})
		}
		moved := t.moved
		t.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
