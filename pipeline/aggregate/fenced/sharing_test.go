package fenced

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// narrow is a link with one connection, which a test can hold up: what comes meanwhile shares a request.
type narrow struct {
	*Link
	held    atomic.Bool
	letGo   chan struct{}
	holding chan struct{}
}

func newNarrow(t *testing.T, c cluster) *narrow {
	n := &narrow{letGo: make(chan struct{}), holding: make(chan struct{})}
	d := &dialer{next: func() fault {
		if n.held.CompareAndSwap(true, false) {
			n.holding <- struct{}{}
			<-n.letGo
		}
		return none
	}}
	n.Link = c.link(t, d)
	n.most = 1
	return n
}

// owner is a writer of an identity of its own over the narrow link, which has fenced.
func (n *narrow) owner(t *testing.T, c cluster) *Writer {
	cfg := c.config(t, nil)
	cfg.Urgent, cfg.Bulk = n.Link, n.Link
	w := c.acquire(t, cfg).NewWriter(c.topic, 0)
	if _, err := w.Fence(patient(t)); err != nil {
		t.Fatal(err)
	}
	start(t, w.Run)
	return w
}

// together appends a record by each writer, such that they share a request, and returns what they were told.
func (n *narrow) together(t *testing.T, first *Writer, meanwhile func(), ws ...*Writer) []error {
	t.Helper()
	ctx := patient(t)
	n.held.Store(true)
	if err := first.Append(ctx, rec("first"), true, nil); err != nil {
		t.Fatal(err)
	}
	<-n.holding
	told := make([]chan error, len(ws))
	for i, w := range ws {
		told[i] = make(chan error, 1)
		if err := w.Append(ctx, rec("together"), true, func(_ int64, _ time.Time, err error) { told[i] <- err }); err != nil {
			t.Fatal(err)
		}
	}
	testrun.Eventually(t, "all wait for the connection", func() bool { return n.waits() == len(ws) })
	meanwhile()
	close(n.letGo)
	errs := make([]error, len(ws))
	for i := range told {
		select {
		case errs[i] = <-told[i]:
		case <-ctx.Done():
			t.Fatalf("writer %d was told nothing", i)
		}
	}
	return errs
}

// waits counts the jobs that wait.
func (n *narrow) waits() (all int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.nodes {
		b.mu.Lock()
		all += len(b.waiting)
		b.mu.Unlock()
	}
	return all
}

func nothing() {}

// The others of a request must not notice that one of its partitions has another owner by now.
func TestAFencedOneOfARequestFailsAlone(t *testing.T) {
	onEach(t, func(t *testing.T, a cluster) {
		b, c := newCluster(t, a.addrs, a.real), newCluster(t, a.addrs, a.real)
		n := newNarrow(t, a)
		first, replaced, other := n.owner(t, a), n.owner(t, b), n.owner(t, c)
		if _, err := a.acquireFor(t, b).NewWriter(b.topic, 0).Fence(patient(t)); err != nil {
			t.Fatal(err)
		}
		errs := n.together(t, first, nothing, replaced, other)
		if !errors.Is(errs[0], ErrFenced) || errs[1] != nil {
			t.Fatalf("the replaced one was told %v, the other %v", errs[0], errs[1])
		}
		testrun.Eventually(t, "the replaced one ends", func() bool { return errors.Is(replaced.Err(), ErrFenced) })
		if other.Err() != nil || first.Err() != nil {
			t.Fatalf("ended: %v, %v", other.Err(), first.Err())
		}
		appendAll(t, other, 100)
		if got := len(data(b.log(t))); got != 0 {
			t.Fatalf("the replaced one has appended %d records", got)
		}
		if got := len(data(c.log(t))); got != 101 {
			t.Fatalf("%d records of the other, want 101", got)
		}
	})
}

// acquireFor is the newer owner of another topic's partition, elsewhere.
func (c cluster) acquireFor(t *testing.T, other cluster) *Identity {
	return other.acquire(t, other.config(t, nil))
}

// A leader that moves is answered for its partition only, which is sent again, to the new one, and is in the
// log once.
func TestALeaderThatMovesDelaysItsPartitionOnly(t *testing.T) {
	k, err := kfake.NewCluster(kfake.NumBrokers(2))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	a := newCluster(t, k.ListenAddrs(), false)
	moving, stays := newCluster(t, a.addrs, false), newCluster(t, a.addrs, false)
	for _, c := range []cluster{a, moving, stays} {
		if err := k.MoveTopicPartition(c.topic, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	n := newNarrow(t, a)
	first, w, other := n.owner(t, a), n.owner(t, moving), n.owner(t, stays)
	errs := n.together(t, first, func() {
		if err := k.MoveTopicPartition(moving.topic, 0, 1); err != nil {
			t.Error(err)
		}
	}, w, other)
	if errs[0] != nil || errs[1] != nil {
		t.Fatalf("told %v", errs)
	}
	for _, c := range []cluster{moving, stays} {
		if got := len(data(c.log(t))); got != 1 {
			t.Errorf("%d records, want 1", got)
		}
	}
}

// Requests and answers are lost while several partitions share them: each log has its records once, in order,
// at the offsets that were told.
func TestSharedRequestsAreSentAgain(t *testing.T) {
	for name, what := range map[string]fault{"answers lost": lostAnswer, "requests lost": lostRequest} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, c cluster) {
				seed := rand.Uint64()
				t.Log("seed", seed)
				random := rand.New(rand.NewPCG(seed, 0))
				d := &dialer{next: func() fault {
					if random.IntN(4) == 0 {
						return what
					}
					return none
				}}
				link := c.link(t, d)
				link.most = 2
				logs := []cluster{c, newCluster(t, c.addrs, c.real), newCluster(t, c.addrs, c.real), newCluster(t, c.addrs, c.real)}
				var all []chan *told
				for i, l := range logs {
					cfg := l.config(t, nil)
					cfg.Urgent, cfg.Bulk, cfg.BatchBytes = link, link, 4<<10
					w := l.acquire(t, cfg).NewWriter(l.topic, 0)
					start(t, w.Run)
					all = append(all, make(chan *told, 1))
					go func() { all[i] <- appendAll(t, w, 300) }()
				}
				for i, l := range logs {
					(<-all[i]).check(t, l.log(t))
				}
				if d.faults() == 0 {
					t.Fatal("nothing was lost")
				}
			})
		})
	}
}

// A batch that cannot be encoded fails alone, although sarama refuses the whole request.
func TestWhatCannotBeSentFailsAlone(t *testing.T) {
	c := fake(t)
	other := newCluster(t, c.addrs, false)
	n := newNarrow(t, c)
	first, bad, good := n.owner(t, c), n.owner(t, newCluster(t, c.addrs, false)), n.owner(t, other)
	bad.id.cfg.Codec = 7 // none
	errs := n.together(t, first, nothing, bad, good)
	if errs[0] == nil || errs[1] != nil {
		t.Fatalf("told %v", errs)
	}
	if got := len(data(other.log(t))); got != 1 {
		t.Errorf("%d records of the other one, want 1", got)
	}
}

// A Link that is closed fails what waits, and what is on its way.
func TestAClosedLinkFailsItsJobs(t *testing.T) {
	c := fake(t)
	n := newNarrow(t, c)
	first, second := n.owner(t, c), n.owner(t, newCluster(t, c.addrs, false))
	told := make(chan error, 2)
	done := func(_ int64, _ time.Time, err error) { told <- err }
	ctx := patient(t)
	n.held.Store(true)
	if err := first.Append(ctx, rec("on its way"), true, done); err != nil {
		t.Fatal(err)
	}
	<-n.holding
	if err := second.Append(ctx, rec("waits"), true, done); err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "it waits for the connection", func() bool { return n.waits() == 1 })
	closed := make(chan struct{})
	go func() {
		n.Close()
		close(closed)
	}()
	if err := <-told; !errors.Is(err, sarama.ErrClosedClient) {
		t.Errorf("what waited was told %v", err)
	}
	close(n.letGo)
	<-closed
	if err := <-told; err != nil && !errors.Is(err, sarama.ErrClosedClient) {
		t.Errorf("what was on its way was told %v", err)
	}
	if _, err := n.leader(context.Background(), c.topic, 0); !errors.Is(err, sarama.ErrClosedClient) {
		t.Errorf("a closed link finds leaders: %v", err)
	}
}

func TestWhatSharesARequest(t *testing.T) {
	batch := &sarama.RecordBatch{}
	for _, tc := range []struct {
		waiting string // names of logs; in capitals: goes alone; with a 9: of 9/16 of a request
		most    int
		want    string
	}{
		{"a b c", 4, "[a b c]"},
		{"a b a c", 4, "[a b c] [a]"},
		{"a9 b9 c", 4, "[a9 c] [b9]"},
		{"a B c D", 4, "[a c] [B] [D]"},
		{"A b C D", 4, "[A] [b] [C]"}, // at most half of the connections, so D waits
		{"A b", 1, "[A] [b]"},
		{"A b C", 2, "[A] [b]"},
	} {
		n := &node{most: tc.most}
		for _, name := range strings.Fields(tc.waiting) {
			j := &job{topic: name[:1], batch: batch, size: 1, alone: name[0] < 'a'}
			if len(name) > 1 {
				j.size = requestBytes / 16 * 9
			}
			n.waiting = append(n.waiting, j)
		}
		got := ""
		for jobs := n.take(); len(jobs) > 0; jobs = n.take() {
			got += fmt.Sprint(" ", names(jobs))
		}
		if got[1:] != tc.want {
			t.Errorf("%s: went as%s, want %s", tc.waiting, got, tc.want)
		}
	}
}

func names(jobs []*job) (all []string) {
	for _, j := range jobs {
		name := j.topic
		if j.size > 1 {
			name += "9"
		}
		all = append(all, name)
	}
	return all
}
