package fenced

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	// connections bounds a Link's connections to a broker. The broker works on one request of each at a time; more
	// than a few that wait for replicas gain little, since what waits for a connection shares the next request.
	connections = 4

	// requestBytes bounds what shares a request, before compression. One batch is always sent.
	requestBytes = 1 << 20

	// idleFor is the time for which an unused connection is trusted. Brokers close one after ten minutes, and what is
	// between may forget it sooner: what is sent on it then is lost, and waits for an error first.
	idleFor = 3 * time.Minute
)

// node is one broker: its connections, and what waits for one of them.
//
// A job is sent at once if a connection is free, or one more may be opened. What comes while all are in use
// shares one request as soon as one of them has its answer. So no job waits for more than the request before
// it, and there are few requests when there is much to send.
type node struct {
	conf *sarama.Config
	most int

	mu      sync.Mutex
	addr    string
	waiting []*job
	idle    []*connection // the last one was used last
	used    map[*connection]bool
	busy    int // goroutines that carry jobs; each uses a connection, or opens one
	alone   int // of these, with a job that goes alone
	closed  bool
	carried sync.WaitGroup
}

// connection is used by one request at a time.
type connection struct {
	broker *sarama.Broker
	addr   string
	since  time.Time // when it was used last
}

// at notes where the broker is now.
func (n *node) at(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addr = addr
}

// submit queues a job, and sees to it that it is carried.
func (n *node) submit(j *job) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		j.answer(nil, sarama.ErrClosedClient)
		return
	}
	n.waiting = append(n.waiting, j)
	if n.busy < n.most {
		n.busy++
		n.carried.Go(n.carry)
	}
}

// withdraw takes a job back, unless it was taken to be sent.
func (n *node) withdraw(j *job) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.Index(n.waiting, j)
	if i >= 0 {
		n.waiting = slices.Delete(n.waiting, i, i+1)
	}
	return i >= 0
}

// carry sends what waits, until nothing does.
func (n *node) carry() {
	for more := n.needed(); more; {
		c, err := n.connect()
		for jobs := n.take(); len(jobs) > 0; jobs = n.take() {
			told := false
			if err == nil {
				told, err = send(c.broker, jobs)
			}
			if err != nil && !told {
				n.fail(jobs, err)
			}
			n.done(jobs)
			if err != nil {
				break
			}
		}
		more = n.leave(c, err)
	}
}

// take removes from the queue what goes into the next request: as much as fits, and one batch of a partition.
func (n *node) take() (jobs []*job) {
	n.mu.Lock()
	defer n.mu.Unlock()
	size, left := 0, n.waiting[:0]
	for _, j := range n.waiting {
		switch {
		case j.alone && len(jobs) == 0 && n.mayAlone():
			n.alone++
			jobs, size = append(jobs, j), requestBytes
		case j.alone || len(jobs) > 0 && size+j.size > requestBytes || slices.ContainsFunc(jobs, j.sameLog):
			left = append(left, j)
		default:
			jobs, size = append(jobs, j), size+j.size
		}
	}
	clear(n.waiting[len(left):])
	n.waiting = left
	return jobs
}

// done makes room for the next jobs that go alone.
func (n *node) done(jobs []*job) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(jobs) == 1 && jobs[0].alone {
		n.alone--
	}
}

// fail answers jobs that were not sent. If sending them again does not help, each is sent alone, to know whose
// error it is.
func (n *node) fail(jobs []*job, err error) {
	n.mu.Lock()
	split := len(jobs) > 1 && final(err) && !n.closed
	if split {
		for _, j := range jobs {
			j.alone = true
		}
		n.waiting = append(n.waiting, jobs...)
	}
	n.mu.Unlock()
	for _, j := range jobs {
		if !split {
			j.answer(nil, err)
		}
	}
}

// connect returns a connection for the caller alone.
func (n *node) connect() (*connection, error) {
	n.mu.Lock()
	var stale []*connection
	for i := len(n.idle) - 1; i >= 0; i-- {
		c := n.idle[i]
		n.idle = n.idle[:i]
		if c.addr == n.addr && elapsed(c.since) < idleFor {
			n.used[c] = true
			n.mu.Unlock()
			closeAll(stale)
			return c, nil
		}
		stale = append(stale, c)
	}
	c := &connection{broker: sarama.NewBroker(n.addr), addr: n.addr}
	n.used[c] = true
	n.mu.Unlock()
	closeAll(stale)
	if err := c.broker.Open(n.conf); err != nil {
		return c, err
	}
	ok, err := c.broker.Connected()
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err != nil:
		return c, err
	case n.closed: // perhaps before it was open
		return c, sarama.ErrClosedClient
	case !ok:
		return c, sarama.ErrNotConnected
	}
	return c, nil
}

// leave gives a connection back, or closes it after an error. It returns true if the caller has to carry
// what has come meanwhile.
func (n *node) leave(c *connection, err error) (more bool) {
	n.mu.Lock()
	delete(n.used, c)
	var old []*connection
	if err != nil || n.closed {
		old = append(old, c)
	} else {
		c.since = time.Now()
		n.idle = append(n.idle, c)
		if elapsed(n.idle[0].since) >= idleFor { // one at a time is enough
			old, n.idle = append(old, n.idle[0]), n.idle[1:]
		}
	}
	more = n.goesOn()
	n.mu.Unlock()
	closeAll(old)
	return more
}

// needed reports whether a goroutine that was started to carry jobs still has some.
func (n *node) needed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.goesOn()
}

// goesOn reports whether take would return something. If not, the caller carries no more. n is locked.
func (n *node) goesOn() bool {
	if slices.ContainsFunc(n.waiting, func(j *job) bool { return !j.alone || n.mayAlone() }) {
		return true
	}
	n.busy--
	return false
}

// mayAlone reports whether one more job may have a connection of its own. n is locked.
func (n *node) mayAlone() bool { return n.alone < max(1, n.most/2) }

// close fails what waits, and closes all connections.
func (n *node) close() {
	n.mu.Lock()
	n.closed = true
	all, waiting := n.idle, n.waiting
	n.idle, n.waiting = nil, nil
	for c := range n.used {
		all = append(all, c)
	}
	n.mu.Unlock()
	for _, j := range waiting {
		j.answer(nil, sarama.ErrClosedClient)
	}
	closeAll(all)
	n.carried.Wait()
}

func closeAll(all []*connection) {
	for _, c := range all {
		_ = c.broker.Close() // an error means that it was closed already
	}
}

// do waits until a job is answered, or ctx ends. It then touches nothing of the job's any more.
func (n *node) do(ctx context.Context, j *job) (*sarama.ProduceResponse, error) {
	j.answered, j.sent = make(chan answered, 1), make(chan struct{})
	if j.call != nil {
		close(j.sent)
	}
	n.submit(j)
	select {
	case a := <-j.answered:
		return a.resp, a.err
	case <-ctx.Done():
	}
	if !n.withdraw(j) {
		select { // its bytes are the caller's again
		case <-j.sent:
		case <-j.answered:
		}
	}
	return nil, context.Cause(ctx)
}
