package fenced

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/tallygate/tallygate/internal/base/retry"
	"golang.org/x/sync/semaphore"
)

// maxWriters bounds the batches of one identity in flight. A refresh takes all units.
const maxWriters = 1 << 30

// transactionTimeout is required by Kafka and never used: no transaction is begun.
const transactionTimeout = time.Minute

// A refresh stops all writers, but only for as long as it waits for the batches in flight and for
// the coordinator's answer. It then lets them continue before it retries.
const (
	batchPatience  = 200 * time.Millisecond
	answerPatience = 2 * time.Second
	refreshPause   = 5 * time.Second
)

var errTooLong = errors.New("it would have delayed the writers for too long")

// stamp identifies the sender of a batch.
type stamp struct {
	pid   int64
	epoch int16
}

// noStamp requests a new producer id.
var noStamp = stamp{-1, -1}

// Identity is one owner's claim to its partition: a producer id and an epoch, shared by the owner's
// writers. It may be used by many goroutines.
type Identity struct {
	cfg Config

	// Every batch holds one unit while it is in flight. A refresh holds all, so that no batch of
	// the old epoch is in flight when the epoch changes.
	batches *semaphore.Weighted

	mu    sync.Mutex
	stamp stamp
	since time.Time // when the stamp was issued
	heard time.Time // when a broker last acknowledged a batch of any writer
	err   error     // why it has ended
	ended chan struct{}

	warned time.Time // when retries were last logged
}

// warnEvery is the interval between log lines about retries, for all writers of an owner together. It has one for
// every partition that it forwards to, and one failed broker makes them all retry.
const warnEvery = 10 * time.Second

// mayWarn reports whether retries may be logged now.
func (id *Identity) mayWarn() bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	if !id.warned.IsZero() && time.Since(id.warned) < warnEvery {
		return false
	}
	id.warned = time.Now()
	return true
}

// Acquire takes the ownership of cfg.TransactionalID. It asks the coordinator for the producer id
// with the next epoch, and retries until ctx ends. It does not fence earlier owners yet: a Writer's
// Fence does, for each topic-partition.
func Acquire(ctx context.Context, cfg Config) (*Identity, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	id := newIdentity(cfg, noStamp)
	pause := newPause()
	for {
		s, err := id.askCoordinator(ctx, noStamp)
		if err == nil {
			id.stamp, id.since = s, time.Now()
			return id, nil
		}
		if err := id.again(ctx, pause, err); err != nil {
			return nil, fmt.Errorf("acquire producer id of %s: %w", cfg.TransactionalID, err)
		}
	}
}

func newIdentity(cfg Config, s stamp) *Identity {
	return &Identity{cfg: cfg, batches: semaphore.NewWeighted(maxWriters), stamp: s, since: time.Now(), ended: make(chan struct{})}
}

// ProducerID returns the owner's producer id, which never changes.
func (id *Identity) ProducerID() int64 {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.stamp.pid
}

// Epoch grows by one with each refresh.
func (id *Identity) Epoch() int16 {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.stamp.epoch
}

// Run refreshes the identity every Config.RefreshEvery until ctx ends or the identity was fenced,
// and returns the cause.
func (id *Identity) Run(ctx context.Context) error {
	t := time.NewTicker(id.cfg.RefreshEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if err := id.Refresh(ctx); err != nil {
				return err
			}
		case <-id.ended:
			_, err := id.current()
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Refresh renews the epoch, between the batches of all writers. Each of them then starts its
// sequence at 0, and first appends a fence record. It retries until ctx ends. ErrFenced means that
// the coordinator knows a newer owner: the identity has ended.
//
// The request names the owner's producer id and epoch (KIP-360), so that the coordinator refuses an
// owner that was replaced. The plain request that Acquire makes would fence the successor.
func (id *Identity) Refresh(ctx context.Context) error {
	s, err := id.current()
	if err != nil {
		return err
	}
	return id.refreshFrom(ctx, s)
}

// refreshFrom does nothing if another goroutine has refreshed from old already.
func (id *Identity) refreshFrom(ctx context.Context, old stamp) error {
	pause := newPause()
	for {
		err := id.tryRefresh(ctx, old)
		if err == nil {
			return nil
		}
		if errors.Is(err, errTooLong) && retry.Sleep(ctx, refreshPause) {
			continue
		}
		if err = id.again(ctx, pause, err); err != nil {
			return fmt.Errorf("refresh producer id of %s: %w", id.cfg.TransactionalID, err)
		}
	}
}

// tryRefresh stops the writers for one request only. A lost answer does no harm: the old epoch
// stays valid in the logs until a fence record has the new one, and the coordinator accepts the
// same request again as a repetition.
func (id *Identity) tryRefresh(ctx context.Context, old stamp) error {
	c, err := id.cfg.Urgent.coordinator(ctx, id.cfg.TransactionalID)
	if err != nil {
		return err
	}
	if err := id.holdWriters(ctx); err != nil {
		return err
	}
	defer id.batches.Release(maxWriters)
	if s, err := id.current(); err != nil || s != old {
		return err
	}
	patient, cancel := context.WithTimeoutCause(ctx, answerPatience, errTooLong)
	defer cancel()
	s, err := id.initProducerID(patient, c, old)
	switch {
	case err != nil:
	case s.pid != old.pid || s.epoch <= old.epoch:
		err = fmt.Errorf("%w (the coordinator answered producer %d epoch %d to producer %d epoch %d)",
			ErrFenced, s.pid, s.epoch, old.pid, old.epoch)
	default:
		id.mu.Lock()
		id.stamp, id.since = s, time.Now()
		id.mu.Unlock()
	}
	id.endIfFenced(err)
	return err
}

// holdWriters waits until no batch is in flight, and lets none start. It does not wait for long: a
// batch that is retried against one failed broker must not stop the writers to all others.
func (id *Identity) holdWriters(ctx context.Context) error {
	patient, cancel := context.WithTimeoutCause(ctx, batchPatience, errTooLong)
	defer cancel()
	if id.batches.Acquire(patient, maxWriters) != nil {
		return context.Cause(patient)
	}
	return nil
}

// again waits before the next request, or returns why there is none.
func (id *Identity) again(ctx context.Context, pause *retry.Backoff, err error) error {
	if ctx.Err() == nil {
		id.cfg.OnError(err)
	}
	if final(err) || !pause.Wait(ctx) {
		return ended(ctx, err)
	}
	if lasting(pause) && id.mayWarn() {
		id.cfg.Log.Warn("Kafka's transaction coordinator returns no producer id; retrying", "transactional_id", id.cfg.TransactionalID, "error", err)
	}
	// The next attempt reports what it does not find.
	_ = id.cfg.Urgent.refreshCoordinator(ctx, id.cfg.TransactionalID)
	return nil
}

func (id *Identity) askCoordinator(ctx context.Context, own stamp) (stamp, error) {
	c, err := id.cfg.Urgent.coordinator(ctx, id.cfg.TransactionalID)
	if err != nil {
		return stamp{}, err
	}
	return id.initProducerID(ctx, c, own)
}

func (id *Identity) initProducerID(ctx context.Context, c *node, own stamp) (stamp, error) {
	req := &sarama.InitProducerIDRequest{
		Version: 4, TransactionalID: &id.cfg.TransactionalID, TransactionTimeout: transactionTimeout,
		ProducerID: own.pid, ProducerEpoch: own.epoch,
	}
	var resp *sarama.InitProducerIDResponse
	_, err := c.do(ctx, &job{alone: true, call: func(b *sarama.Broker) (err error) {
		resp, err = b.InitProducerID(req)
		return err
	}})
	if err != nil {
		return stamp{}, err
	}
	if err := answer(resp.Err, retriableInit); err != nil {
		return stamp{}, err
	}
	if resp.Version < 3 { // sarama has lowered it: a refresh would become a plain request
		return stamp{}, fmt.Errorf("%w: the broker's InitProducerId has version %d, at least 3 is needed", errAnswer, resp.Version)
	}
	return stamp{resp.ProducerID, resp.ProducerEpoch}, nil
}

func (id *Identity) current() (stamp, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.stamp, id.err
}

func (id *Identity) endIfFenced(err error) {
	if !errors.Is(err, ErrFenced) {
		return
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.err == nil {
		id.err = err
		close(id.ended)
	}
}

// elapsed is the time since t, by the clock that shows more. The monotonic clock stops while the
// machine is suspended, and the wall clock may be set back.
func elapsed(t time.Time) time.Duration {
	return max(time.Since(t), time.Now().Round(0).Sub(t.Round(0)))
}
