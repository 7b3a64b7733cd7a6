package aggregate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/lovoo/goka/storage"

	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// ownership is a partition for as long as a session has it. goka uses it as the partition's
// storage. It takes the partition over in the background, and again with backoff each time that the
// partition fails. Meanwhile the session and all other partitions continue.
type ownership struct {
	agg     *instance
	id      int32
	session *owner.Session
	stop    chan struct{} // closed by Close
	done    chan struct{} // closed when run has returned
	began   bool          // run was started

	mu     sync.Mutex
	live   *owner.Partition // taken over and not failed; nil if there is none
	failed error            // why the last one failed; nil before that, and while one is live
	fault  fault            // the last failure, also while one is live
	change chan struct{}    // closed when live changes
}

// newOwnership is goka's storage builder.
func (a *instance) newOwnership(_ string, id int32) (storage.Storage, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session == nil {
		return nil, errors.New("open a partition outside a session")
	}
	o := &ownership{
		agg: a, id: id, session: a.session,
		stop: make(chan struct{}), done: make(chan struct{}), change: make(chan struct{}),
	}
	a.owns[id] = o
	return o, nil
}

// ownership returns this instance's ownership of a partition, or nil.
func (a *instance) ownership(id int32) *ownership {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.owns[id]
}

// Open starts to take the partition over. It does not wait: a partition that cannot be taken over
// does not delay the others.
func (o *ownership) Open() error {
	o.began = true
	go o.run()
	return nil
}

// Close gives the partition up. It makes durable what was counted, if that is possible in time.
func (o *ownership) Close() error {
	close(o.stop)
	if o.began {
		<-o.done
	}
	o.agg.mu.Lock()
	defer o.agg.mu.Unlock()
	if o.agg.owns[o.id] == o {
		delete(o.agg.owns, o.id)
	}
	return nil
}

// run takes the partition over again and again, until it is closed or the session ends.
func (o *ownership) run() {
	defer close(o.done)
	pause := retry.Backoff{Min: minBackoff, Max: maxBackoff}
	for {
		began := time.Now()
		err := o.once()
		if err == nil || o.session.Context().Err() != nil {
			return
		}
		if time.Since(began) > time.Minute {
			pause.Reset()
		}
		o.agg.metrics.failed.WithLabelValues(label(o.id)).Inc()
		o.agg.tallies.count(o.id, 0, 1)
		if owner.EndsSession(err) {
			o.session.End(fmt.Errorf("partition %d: %w", o.id, err))
			return
		}
		wait := pause.Next()
		o.agg.log.Error("partition failed; taking it over again, its events will be replayed", "partition", o.id, "error", err, "retry_seconds", wait.Seconds())
		if !o.pause(wait) {
			return
		}
		if err := o.sameTopics(); err != nil {
			o.session.End(err)
			return
		}
	}
}

// once takes the partition over and keeps it until it fails. It returns nil if it was closed.
func (o *ownership) once() error {
	p := owner.New(&o.agg.env, o.id, o.session)
	o.agg.enter(p)
	err := p.Open()
	if err == nil {
		o.agg.tallies.count(o.id, 1, 0)
		o.set(p, nil)
		select {
		case <-p.Done():
		case <-o.stop:
		}
	}
	p.Close()
	if err == nil {
		err = p.Err()
	}
	if errors.Is(err, owner.ErrReleased) {
		err = nil
	}
	o.set(nil, err)
	return err
}

// sameTopics returns an error if the topics are no longer those of the session. If Kafka does not
// answer now, the next takeover finds out.
func (o *ownership) sameTopics() error {
	have, err := o.agg.look()
	if o.agg.fatal() != nil {
		return o.agg.fatal()
	}
	if err != nil {
		return nil
	}
	return sameTopics(o.session.Topics, have)
}

// pause waits. It returns false if the partition is no longer wanted.
func (o *ownership) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-o.stop:
	case <-o.session.Context().Done():
	}
	return false
}

func (o *ownership) set(p *owner.Partition, failed error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.live, o.failed = p, failed
	o.fault.note(failed)
	close(o.change)
	o.change = make(chan struct{})
}

// present waits until the partition is taken over. It returns nil if ctx ends first.
func (o *ownership) present(ctx context.Context) *owner.Partition {
	for {
		o.mu.Lock()
		p, change := o.live, o.change
		o.mu.Unlock()
		if ctx.Err() != nil {
			return nil
		}
		if p != nil && p.Err() == nil {
			return p
		}
		select {
		case <-change:
		case <-ctx.Done():
			return nil
		}
	}
}

// failure is why the partition is not there. It is nil while it is, and during the first takeover.
func (o *ownership) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

// feed reads a claim for one partition after the other, from where each begins, until ctx ends.
func (o *ownership) feed(ctx context.Context, claim sarama.ConsumerGroupClaim, out chan *sarama.ConsumerMessage) {
	for {
		p := o.present(ctx)
		if p == nil {
			return
		}
		o.agg.feed(ctx, p, claim, out)
	}
}

// feed reads a claim until ctx or the partition ends.
func (a *instance) feed(ctx context.Context, p *owner.Partition, claim sarama.ConsumerGroupClaim, out chan *sarama.ConsumerMessage) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.Context(), cancel)()
	src := shard.Input
	if claim.Topic() == a.names.Loop {
		src = shard.Loop
	}
	reader := p.Read(src)
	defer reader.Close()
	reader.Keep()
	memory := a.budget.NewClaim()
	defer memory.Close()
	b := &bundler{part: p, reader: reader, memory: memory, claim: claim, source: src, out: out, flight: &a.bundles, sent: reader.Progress().Next}
	if err := b.run(ctx); ctx.Err() == nil {
		p.Fail(fmt.Errorf("read %s/%d: %w", claim.Topic(), p.ID(), err))
	}
}

// tallies counts how often this instance has taken over each partition, and how often it failed.
type tallies struct {
	mu                  sync.Mutex
	takeovers, failures map[int32]uint64
}

func (t *tallies) count(id int32, takeovers, failures uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.takeovers == nil {
		t.takeovers, t.failures = map[int32]uint64{}, map[int32]uint64{}
	}
	t.takeovers[id] += takeovers
	t.failures[id] += failures
}

func (t *tallies) of(id int32) (takeovers, failures uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.takeovers[id], t.failures[id]
}

// The methods of goka's storage. A partition recovers by itself, so goka finds nothing to load: its
// topic manager says that the table ends where this storage is (see settledTables). goka reads and
// writes nothing here.

func (o *ownership) GetOffset(int64) (int64, error)      { return settledEnd - 1, nil }
func (o *ownership) SetOffset(int64) error               { return nil }
func (o *ownership) MarkRecovered() error                { return nil }
func (o *ownership) Has(string) (bool, error)            { return false, nil }
func (o *ownership) Get(string) ([]byte, error)          { return nil, nil }
func (o *ownership) Set(string, []byte) error            { return nil }
func (o *ownership) Delete(string) error                 { return nil }
func (o *ownership) Iterator() (storage.Iterator, error) { return nil, errors.ErrUnsupported }
func (o *ownership) IteratorWithRange([]byte, []byte) (storage.Iterator, error) {
	return nil, errors.ErrUnsupported
}
