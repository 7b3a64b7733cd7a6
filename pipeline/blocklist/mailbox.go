package blocklist

import (
	"context"
	"slices"
	"sync"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// delivery is the result of one reading of the stream, or a snapshot. It is made once, for the sinks of all feeds of
// a reader; none changes it.
type delivery struct {
	steps   []step
	all     []verdict.Verdict // of the steps
	keys    []string          // of the changes: their record keys; none of a snapshot
	changes int
	applied event.Micros // 0: it brings no heartbeat
	shared  *scan        // it is a snapshot, which this one took; nil: it is not
	replace bool         // the snapshot is complete: it replaces what a sink has
}

// step is verdicts, or one removal.
type step struct {
	verdicts []verdict.Verdict
	removed  []byte // a record key
}

// add appends a change. Verdicts that follow one another become one step.
func (d *delivery) add(c change) {
	d.changes++
	d.keys = append(d.keys, c.key)
	if !c.blocks {
		d.steps = append(d.steps, step{removed: []byte(c.key)})
		return
	}
	if n := len(d.steps); n == 0 || d.steps[n-1].verdicts == nil {
		d.steps = append(d.steps, step{})
	}
	last := &d.steps[len(d.steps)-1]
	d.all = append(d.all, c.verdict)
	last.verdicts = d.all[len(d.all)-1-len(last.verdicts):]
}

// to tells a sink what is delivered.
func (d *delivery) to(sink Sink, shard int) {
	for _, s := range d.steps {
		switch {
		case s.removed != nil:
			sink.Remove(shard, s.removed)
		case d.replace:
			sink.Replace(shard, s.verdicts)
		default:
			sink.Apply(shard, s.verdicts)
		}
	}
	if d.applied > 0 {
		sink.Heartbeat(shard, d.applied)
	}
}

// leastRoom is the number of changes below which a mailbox is never full: twice the stream's by default, some 60 MB
// at the most, which all that are behind share. A variable, so that a test need not write as many.
var leastRoom = 1 << 17

// mailbox queues the changes of one shard for the sink of one feed. The reader puts things in without ever waiting,
// and a goroutine of the feed's own Run takes them out: so sinks work on all cores, and one that takes its time, or
// never returns, holds up no other. When more waits than there is room for, all of it is dropped, and the sink gets a
// snapshot once it has time.
type mailbox struct {
	feed  *Feed
	sink  Sink
	shard int
	wake  chan struct{} // holds one element when something was put in

	mu sync.Mutex
	// It has had, or will take out, a snapshot, and gets what changes; else it waits for one.
	follows bool
	asked   uint64 // the sink's SnapshotsWanted before the latest snapshot
	queue   []*delivery
	changes int // in queue
	room    int
	busy    bool // the sink is being told something
	late    bool // it was full, and the sink still has not returned
	closed  bool
}

func newMailbox(f *Feed, sink Sink, shard int) *mailbox {
	return &mailbox{feed: f, sink: sink, shard: shard, wake: make(chan struct{}, 1), room: leastRoom}
}

// put hands on a change to a sink that follows. full says that there was no room, and so the sink
// has lost its place.
func (b *mailbox) put(d *delivery) (full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.follows || b.closed {
		return false
	}
	if b.changes > 0 && b.changes+d.changes > b.room {
		b.drop()
		b.follows, b.late = false, b.busy
		return true
	}
	b.push(d)
	return false
}

// begin hands on a snapshot to a sink that waits for one.
func (b *mailbox) begin(d *delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.waits() || b.closed {
		return
	}
	b.asked = b.wanted() // before: what it loses from now on asks again
	b.room = max(leastRoom, len(d.steps[0].verdicts))
	b.follows = true
	d.shared.users.Add(1)
	b.push(d)
}

func (b *mailbox) push(d *delivery) {
	b.queue = append(b.queue, d)
	b.changes += d.changes
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// drop empties the queue.
func (b *mailbox) drop() {
	for _, d := range b.queue {
		d.shared.used()
	}
	b.queue, b.changes = nil, 0
}

// waits reports whether the sink waits for a snapshot, and has time for it.
func (b *mailbox) waits() bool { return !b.follows && !b.late }

// wanted returns the sink's SnapshotsWanted; 0 when it has none.
func (b *mailbox) wanted() uint64 {
	if sink, ok := b.sink.(interface{ SnapshotsWanted() uint64 }); ok {
		return sink.SnapshotsWanted()
	}
	return 0
}

// run tells the sink what is put in, until ctx ends.
func (b *mailbox) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
			for ctx.Err() == nil && b.next() {
			}
		}
	}
}

// next tells the sink what came first, and reports whether there was anything.
func (b *mailbox) next() bool {
	d := b.pop()
	if d == nil {
		return false
	}
	d.to(b.sink, b.shard)
	b.feed.count(func(st *FeedStats) {
		switch {
		case d.shared == nil:
			st.Changes += uint64(d.changes)
		case d.replace:
			st.Snapshots++
		default:
			st.Partial++
		}
	})
	d.shared.used()
	return true
}

// pop takes out what came first, merged with what follows where that is much; nil when there is
// nothing, and then the sink is not busy any more.
func (b *mailbox) pop() *delivery {
	first := b.take()
	switch len(first) {
	case 0:
		return nil
	case 1:
		return first[0]
	}
	return merge(first)
}

// take takes out what came first: a delivery, or, where much waits, all that is ahead of the next
// snapshot.
func (b *mailbox) take() []*delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		b.busy, b.late = false, false
		return nil
	}
	n, changes := 1, b.queue[0].changes
	for b.changes >= mergeAt && b.queue[0].shared == nil && n < len(b.queue) && b.queue[n].shared == nil {
		changes += b.queue[n].changes
		n++
	}
	first := slices.Clone(b.queue[:n])
	clear(b.queue[:n])
	b.queue = b.queue[n:]
	b.changes -= changes
	b.busy = true
	return first
}

// close drops what was not taken out; nothing comes in any more.
func (b *mailbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.drop()
}

// needs reports whether the sink waits for a snapshot, and whether it has only now asked for one.
func (b *mailbox) needs() (snapshot, asked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.follows && b.wanted() != b.asked {
		b.follows, asked = false, true
	}
	return b.waits(), asked
}

// letWait has the sink wait for a snapshot, and reports whether it followed.
func (b *mailbox) letWait() (followed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	followed, b.follows = b.follows, false
	return followed
}
