package kafkalog

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A broker answers a request that waits for records as soon as one of its partitions has some. What is
// appended to the others meanwhile waits for the next request: up to a round trip, and if there is always
// something, half of one on average. That is nothing nearby, and matters far away. So the partitions of a
// broker that is far away are shared out over lanes: connections of their own, each with its own request.
// Nearby, lanes would only mean more requests.
const (
	manyLanes = 4

	// rounds is the number of questions to a broker, to measure its distance; the quickest answer counts.
	rounds = 5

	// measuredWithin bounds that: a broker that has not answered by then counts as near, and is read from.
	measuredWithin = 2 * time.Second
)

// lanes are the connections to read over.
type lanes struct {
	clients []*kgo.Client  // by lane
	wide    map[int32]bool // brokers that have all lanes; under the fetcher's lock
}

// open makes the clients, which connect when they are used.
func (l *lanes) open(cfg Config) error {
	n := 1
	if cfg.Far > 0 {
		n = manyLanes
	}
	for range n {
		c, err := kgo.NewClient(cfg.options()...)
		if err != nil {
			l.close()
			return err
		}
		l.clients = append(l.clients, c)
	}
	return nil
}

func (l *lanes) close() {
	for _, c := range l.clients {
		c.Close()
	}
}

// distance measures a broker's time for an answer that it need not look for; 0 if there is none.
func (l *lanes) distance(ctx context.Context, broker int32) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, measuredWithin)
	defer cancel()
	var least time.Duration
	for i := range rounds {
		began := time.Now()
		if _, err := l.clients[0].Broker(int(broker)).Request(ctx, kmsg.NewPtrApiVersionsRequest()); err != nil {
			return 0
		}
		if took := time.Since(began); i == 1 || i > 1 && took < least { // the first also connects
			least = took
		}
	}
	return least
}

// choose gives a reader, of which nothing is asked now, to the lane of its leader that has the fewest of its
// topic. The fetcher is locked.
func (l *lanes) choose(r *Reader, all []*Reader) {
	r.lane = 0
	if !l.wide[r.leader] {
		return
	}
	var has [manyLanes]int
	for _, other := range all {
		if other != r && other.leader == r.leader && other.topic == r.topic {
			has[other.lane]++
		}
	}
	for lane, n := range has {
		if n < has[r.lane] {
			r.lane = lane
		}
	}
}

// widen measures how far a new broker is, and gives it all lanes if it is far away. Nothing was asked of it
// yet, so its readers can be moved. A broker that does not answer keeps one lane.
func widen(ctx context.Context, f *Fetcher, first *node) {
	if f.cfg.Far == 0 || f.lanes.distance(ctx, first.broker) < f.cfg.Far {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lanes.wide[first.broker] = true
	for lane := 1; lane < len(f.lanes.clients); lane++ {
		n := newNode(f, spot{first.broker, lane})
		f.serving.Go(func() { f.serve(ctx, f.lanes.clients[lane], n) })
	}
	for _, r := range f.readers {
		if r.leader == first.broker {
			f.lanes.choose(r, f.readers)
			f.nodes[r.spot()].signal()
		}
	}
}

// newNode makes a broker's node for a lane. The fetcher is locked.
func newNode(f *Fetcher, where spot) *node {
	n := &node{spot: where, wake: make(chan struct{}, 1)}
	f.nodes[where] = n
	return n
}
