package kafkalog

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Fetcher reads for all its readers. There is one request at a time on its way to each broker, for
// all partitions there of which not enough is held ready: a broker works on one request a
// connection, and a partition that waits for records must not hold up another one's. To a broker that
// is far away there are several: see lanes.
type Fetcher struct {
	served
	lost chan struct{} // holds one: a reader's leader is to be found

	running chan struct{} // closed when there is a client
	client  atomic.Pointer[kgo.Client]
	lanes   lanes
	serving sync.WaitGroup
}

// served are the readers, where each is served, and what they hold.
type served struct {
	cfg Config

	mu      sync.Mutex
	readers []*Reader
	nodes   map[spot]*node
	holding holding
}

// spot is a reader's broker and lane.
type spot struct {
	broker int32
	lane   int
}

// node is a broker, as far as it serves one lane.
type node struct {
	spot
	wake chan struct{} // holds one: there may be something to ask for
	turn int           // which reader is first in the next request
}

func (n *node) signal() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// startTogether is a new reader's wait for others that begin now: the first question has them all, and nobody waits
// until a broker has waited for records of another one's.
const startTogether = 10 * time.Millisecond

// New checks cfg. Nothing is connected before Start.
func New(cfg Config) (*Fetcher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Fetcher{served: served{cfg: cfg, nodes: map[spot]*node{}}, lost: make(chan struct{}, 1), running: make(chan struct{}), lanes: lanes{wide: map[int32]bool{}}}, nil
}

// Start begins to read, until stop is called. It is called once.
func (f *Fetcher) Start() (stop func(), err error) {
	if err := f.lanes.open(f.cfg); err != nil {
		return nil, fmt.Errorf("set up connections to read from: %w", err)
	}
	client := f.lanes.clients[0]
	f.client.Store(client)
	close(f.running)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f.run(ctx, client) })
	return func() {
		cancel()
		wg.Wait()
		f.lanes.close()
	}, nil
}

// run finds leaders, and has each read, until ctx ends.
func (f *Fetcher) run(ctx context.Context, client *kgo.Client) {
	defer f.serving.Wait()
	for {
		due, wait := f.due(time.Now())
		if len(due) > 0 {
			for _, n := range f.findLeaders(ctx, client, due) {
				f.serving.Go(func() {
					widen(ctx, f, n)
					f.serve(ctx, client, n)
				})
			}
			if ctx.Err() != nil {
				return
			}
			continue
		}
		retry := time.NewTimer(wait)
		select {
		case <-retry.C:
		case <-f.lost:
		case <-ctx.Done():
			retry.Stop()
			return
		}
		retry.Stop()
	}
}

// Read starts to read a partition at offset from. id is the topic's, as far as it is known: another
// topic of the same name is not read.
func (f *Fetcher) Read(topic string, id [16]byte, partition int32, from int64) *Reader {
	return f.ReadBehind(topic, id, partition, from, noEpoch)
}

// ReadBehind is Read where it is known which leader took what lies right below from, by its epoch.
// The reader fails with ErrCut when the log has lost that, whatever was appended in its place.
func (f *Fetcher) ReadBehind(topic string, id [16]byte, partition int32, from int64, epoch int32) *Reader {
	r := &Reader{
		fetcher: f, topic: topic, id: id, partition: partition, next: from,
		unpack: &unpacker{most: f.cfg.MaxBatch},
		ready:  make(chan struct{}, 1),
		size:   f.cfg.PartitionBytes,
		leader: noLeader,
		last:   epoch,
		asked:  noEpoch,
		end:    -1,
		heard:  time.Now(),

		retryAt: time.Now().Add(startTogether),
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers = append(f.readers, r)
	f.look()
	return r
}

// look wakes up whoever finds leaders.
func (f *Fetcher) look() {
	select {
	case f.lost <- struct{}{}:
	default:
	}
}
