package emit

import (
	"context"
	"sync"
	"time"

	"github.com/tallygate/tallygate/internal/base/retry"
)

const (
	maxRequests     = 5       // on their way to one broker, each with partitions of its own
	maxRequestBytes = 8 << 20 // of one request, before compression; at least one batch
	minBackoff      = 50 * time.Millisecond
	maxBackoff      = time.Second
)

// sender is the one goroutine that takes batches out of the lanes and decides what is sent
// when. It owns the outboxes; the requests themselves run in goroutines of their own and
// come back as results.
type sender struct {
	*Emitter
	boxes    []*outbox // by partition
	requests sync.WaitGroup
	flight   map[int]int      // requests on their way or about to be sent, by broker
	groups   map[int]*request // dispatch's: what it is about to send, by broker
	failing  int              // outboxes whose oldest batch failed at least once
	flushed  time.Time        // when partial batches were sent last
	timer    *time.Timer

	results chan result
	layouts chan []int
	refresh chan struct{} // asks for a new layout
}

// outbox is one partition's way out. One batch at a time is on its way, and the next one
// starts when it is acknowledged or dropped: sequences reach the broker in their order.
type outbox struct {
	partition int32
	lane      *lane
	leader    int      // -1 while unknown
	sequence  uint64   // the last one given, unless positions are
	queue     []*batch // numbered, oldest first; more than one after a batch was divided
	busy      bool     // queue[0] is on its way
	attempts  int      // of queue[0] that failed
	retryAt   time.Time
}

func newSender(e *Emitter) *sender {
	return &sender{
		Emitter: e,
		flight:  make(map[int]int),
		groups:  make(map[int]*request),
		timer:   time.NewTimer(time.Hour),
		results: make(chan result),
		layouts: make(chan []int),
		refresh: make(chan struct{}, 1),
	}
}

// run sends until the Emitter is closed and its queue is empty. When ctx ends, requests are
// cut short and all that is queued is dropped.
func (s *sender) run(ctx context.Context) {
	defer close(s.sent)
	defer s.transport.CloseIdleConnections()
	defer s.requests.Wait()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	s.requests.Go(func() { s.watch(watching) })

	abandoned := ctx.Done()
	for !s.closed.Load() || !s.queued.empty() {
		if ctx.Err() == nil {
			s.dispatch(ctx, time.Now())
		} else {
			abandoned = nil
			s.dropAll()
			if s.queued.empty() {
				return
			}
		}
		select {
		case <-s.wake:
		case r := <-s.results:
			s.settle(r, time.Now())
		case leaders := <-s.layouts:
			s.adopt(leaders)
		case <-s.timer.C:
		case <-abandoned:
		}
	}
}

// adopt takes in which broker leads each partition.
func (s *sender) adopt(leaders []int) {
	known := len(s.boxes)
	for p := known; p < len(leaders); p++ {
		s.boxes = append(s.boxes, &outbox{partition: int32(p), lane: &lane{perRecord: s.perRecord}})
	}
	for p, box := range s.boxes {
		// A topic that was made anew with fewer partitions leaves the others' events waiting.
		box.leader = -1
		if p < len(leaders) {
			box.leader = leaders[p]
		}
	}
	if open := s.lanes.Load(); open == nil || len(*open) != len(leaders) {
		lanes := make([]*lane, len(leaders))
		for p := range lanes {
			lanes[p] = s.boxes[p].lane
		}
		s.publish(lanes)
	}
	if s.failing == 0 {
		s.failed(nil)
	}
}

// dispatch sends what is due, one request or more per broker, and sets the timer for what is
// due next.
func (s *sender) dispatch(ctx context.Context, now time.Time) {
	eager := s.cfg.Linger < 0 || s.closed.Load()
	flushAt := s.flushed.Add(s.cfg.Linger) // what comes after a pause goes at once
	flush := eager || !now.Before(flushAt)
	var next time.Time
	clear(s.groups)
	waits := false
	for _, box := range s.boxes {
		if s.due(box, now, flush) {
			s.group(ctx, box)
		}
		switch {
		case box.busy || box.leader < 0: // a result or a layout will bring us back
		case len(box.queue) > 0:
			if box.retryAt.After(now) {
				next = earlier(next, box.retryAt)
			}
		default:
			waits = waits || box.lane.level() != empty
		}
	}
	for _, r := range s.groups {
		s.send(ctx, r)
	}
	switch {
	case flush && len(s.groups) > 0:
		s.flushed = now
	case waits && !flush: // after a flush a result will bring us back
		next = earlier(next, flushAt)
	}
	if next.IsZero() {
		s.timer.Stop()
		return
	}
	s.timer.Reset(next.Sub(now))
}

// due reports whether the outbox has a batch to send now, which is then queue[0].
func (s *sender) due(box *outbox, now time.Time, flush bool) bool {
	if box.busy || box.leader < 0 || now.Before(box.retryAt) {
		return false
	}
	if len(box.queue) > 0 {
		return true
	}
	if s.groups[box.leader] == nil && s.flight[box.leader] >= maxRequests {
		return false // what waits meanwhile makes a greater batch
	}
	b := box.lane.take(flush)
	if b == nil {
		return false
	}
	for i := range b.records {
		if b.records[i].sequence == 0 {
			box.sequence++
			b.records[i].sequence = box.sequence
		}
	}
	box.queue = append(box.queue, b)
	return true
}

// group adds the outbox to its broker's next request; a full one is sent first. While the
// broker has enough requests the outbox stays as it is, for the next result's dispatch.
func (s *sender) group(ctx context.Context, box *outbox) {
	size := box.queue[0].wireBytes()
	r := s.groups[box.leader]
	if r == nil || r.size+size > maxRequestBytes {
		if s.flight[box.leader] >= maxRequests {
			return
		}
		if r != nil {
			s.send(ctx, r)
		}
		r = &request{leader: box.leader}
		s.groups[box.leader] = r
		s.flight[box.leader]++
	}
	r.size += size
	r.boxes = append(r.boxes, box)
	r.batches = append(r.batches, box.queue[0])
	box.busy = true
}

func (s *sender) send(ctx context.Context, r *request) {
	s.requests.Go(func() {
		answers := s.produce(ctx, r)
		s.results <- result{request: r, answers: answers}
	})
}

// dropAll drops what is queued and not on its way.
func (s *sender) dropAll() {
	for _, box := range s.boxes {
		if !box.busy {
			for _, b := range box.queue {
				s.lose(b, Drop{Reason: Undelivered})
			}
			box.queue = nil
		}
		s.loseAll(box.lane)
	}
	s.loseAll(&s.unrouted)
}

func (s *sender) loseAll(l *lane) {
	for b := l.take(true); b != nil; b = l.take(true) {
		s.lose(b, Drop{Reason: Undelivered})
	}
}

// lose drops a batch for the reason in d.
func (s *sender) lose(b *batch, d Drop) {
	d.Events = b.events
	s.toldOf(b, d.error())
	s.unreserve(b.events, b.bytes)
	b.release()
	s.drop(d)
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// backoff is spread, so that a broker that comes back is not met by everyone at once.
func backoff(attempts int) time.Duration {
	return retry.Spread(retry.After(attempts, minBackoff, maxBackoff))
}
