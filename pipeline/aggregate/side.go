package aggregate

import (
	"context"
	"sync"

	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

const (
	// maxSideBatch bounds what is sent aside at once, and maxDeadLetter how much of a record goes
	// to the dead-letter topic, where the topics take that much.
	maxSideBatch  = 832 << 10
	maxDeadLetter = 768 << 10

	// sideRoom is what a dead letter needs beside its value: headers, a key, the batch around it.
	sideRoom = 16 << 10
)

// sideBatch is what the topics take: a batch that is larger than one of them allows would be
// refused, and nothing counted any more.
func sideBatch(l *topics.Layout) int {
	n := maxSideBatch
	for _, topic := range []string{l.Names.DeadLetters, l.Names.Audit} {
		if most := l.MaxBytes[topic]; most > 0 {
			n = min(n, most)
		}
	}
	return n
}

// sideTicket counts what a partition has sent aside and is not acknowledged: what was sent
// before the last cut, and what after it.
type sideTicket struct {
	mu    sync.Mutex
	open  [2]int64
	gen   int // what is sent now belongs to open[gen]
	err   error
	moved chan struct{} // closed at the next acknowledgement; nil when nobody waits
}

// sideMark comes back with an acknowledgement.
type sideMark struct {
	ticket *sideTicket
	gen    int
}

func (t *sideTicket) send() sideMark {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[t.gen]++
	return sideMark{t, t.gen}
}

// cut starts a new generation. The one before the last must have been waited for.
func (t *sideTicket) cut() (gen int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	gen, t.gen = t.gen, 1-t.gen
	return gen
}

func (m sideMark) acked(err error) {
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
func (t *sideTicket) wait(ctx context.Context, gen int) error {
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
