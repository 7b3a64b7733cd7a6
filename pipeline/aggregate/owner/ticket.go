package owner

import (
	"context"
	"sync"
)

// ticket counts the auxiliary records of a partition that are not acknowledged: those sent
// before the last cut, and those after it.
type ticket struct {
	mu    sync.Mutex
	open  [2]int64
	gen   int // what is sent now belongs to open[gen]
	err   error
	moved chan struct{} // closed at the next acknowledgement; nil when nobody waits
}

// ticketMark comes back with an acknowledgement.
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

// cut starts a new generation. The one before the last must have been waited for.
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

// wait returns when all of a generation is acknowledged.
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
