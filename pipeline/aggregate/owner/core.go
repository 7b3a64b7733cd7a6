package owner

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// core is the state shared by a Partition's parts: the shard, its lock, and the partition's end.
type core struct {
	env *Env
	log *slog.Logger
	id  int32

	session *Session
	ctx     context.Context // ends when the partition fails or is closed
	working context.Context // ends with ctx or the session; then no event is applied
	cancel  context.CancelCauseFunc
	wg      sync.WaitGroup // of all of the partition's goroutines
	stop    chan struct{}  // closed by Close: the last checkpoint is due

	opened   atomic.Bool
	openedAt time.Time     // set before opened is
	took     time.Duration // the takeover; the same

	durableAt atomic.Int64 // Unix nanoseconds: when all that was counted was last known to be durable; 0: never

	stateBytes atomic.Int64 // what the shard's states and their index take; as of the last look

	mu      sync.Mutex
	waiting atomic.Int32 // how many others wait for mu while the partition's goroutine holds it
	held    time.Time    // since when lockTimed holds mu
	shard   *shard.Shard // under mu, like rules
	rules   *Rules       // that the shard counts by

	brokers brokerClock
}

func newCore(env *Env, id int32, s *Session) *core {
	// Not the session's context: it ends before the last checkpoint.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(s.Context()))
	working, rest := context.WithCancel(ctx)
	atEnd := context.AfterFunc(s.Context(), rest)
	context.AfterFunc(ctx, func() { atEnd() })
	return &core{
		env:     env,
		log:     env.Log.With("partition", id),
		id:      id,
		session: s,
		ctx:     ctx,
		working: working,
		cancel:  cancel,
		stop:    make(chan struct{}),
	}
}

// begin makes the shard, with the rules for the takeover. The partition keeps them until that is
// over.
func (c *core) begin(v *Rules, settled shard.Settled) {
	cfg := c.shardConfig()
	cfg.Settled = settled
	c.lock()
	defer c.mu.Unlock()
	c.rules, c.shard = v, shard.New(cfg, v.forShard())
}

// shardConfig is the configuration of the partition's shard.
func (c *core) shardConfig() shard.Config {
	topic := func(name string) shard.Topic {
		id := c.session.Topics[name].ID // as it was when the session began
		return shard.Topic{Name: name, ID: base64.RawURLEncoding.EncodeToString(id[:])}
	}
	names := c.env.Names
	return shard.Config{
		ID: c.id, Of: c.env.Partitions,
		Topics:         shard.Topics{Events: topic(names.Events), Loop: topic(names.Loop), Table: topic(names.Table), Verdicts: topic(names.Verdicts)},
		ProducerTimes:  c.env.ProducerTimes,
		AcceptNewTopic: c.env.AcceptNewTopic,
		MaxDeadLetter:  c.env.MaxDeadLetter,
		Instance:       c.env.Instance,
		Seed:           rand.Uint64(),
		PackAfter:      event.Micros(c.env.PackAfter.Microseconds()),
		Spans:          c.env.Tracer != nil,
		SpanEvery:      c.env.TraceEvery,
	}
}

// goes runs f in a goroutine of the partition. The partition fails if f returns an error.
func (c *core) goes(f func() error) {
	c.wg.Go(func() { c.fail(c.ended(f())) })
}

// fail ends the partition. The next owner replays what was not durable. That is this instance
// again, unless the error ends the session.
func (c *core) fail(err error) {
	if err == nil || c.ctx.Err() != nil {
		return
	}
	if isFinal(err) {
		err = c.env.Fail(fmt.Errorf("partition %d: %w", c.id, err))
	}
	c.cancel(err)
	if EndsSession(err) {
		c.log.Error("partition failed; the session ends with it", "error", err)
		c.session.End(fmt.Errorf("partition %d: %w", c.id, err))
	}
}

// ended drops the error of a goroutine that was told to end.
func (c *core) ended(err error) error {
	if c.ctx.Err() != nil {
		return nil
	}
	return err
}

// lock is for all but the partition's own goroutine, which makes room between events if it sees
// that others wait.
func (c *core) lock() {
	c.waiting.Add(1)
	c.mu.Lock()
	c.waiting.Add(-1)
}

// lockTimed is lock for checkpoints. unlockTimed observes in a metric how long the lock was held.
func (c *core) lockTimed() {
	c.lock()
	c.held = time.Now()
}

func (c *core) unlockTimed() {
	pause := time.Since(c.held)
	c.mu.Unlock()
	c.env.Metrics.pauses.Observe(pause.Seconds())
}

// clock returns the current time by both clocks.
func (c *core) clock() shard.Clock {
	is := shard.Clock{Local: now(), Broker: event.NoTime}
	if at, ok := c.brokers.now(); ok {
		is.Broker = at
	}
	return is
}

// tally adds the shard's tally to the metrics. The partition is locked.
func (c *core) tally() {
	t := c.shard.Tally()
	c.env.Metrics.tell(t, c.rules)
	c.tellMismatches(t)
	c.tellNoticed(t)
	c.tellSuspects(t)
}

func (c *core) topicOf(src shard.Source) string {
	if src == shard.Loop {
		return c.env.Names.Loop
	}
	return c.env.Names.Events
}

// awaited waits for what a channel brings. It reports false when the partition stops or ends first.
func awaited[T any](c *core, what <-chan T) bool {
	select {
	case <-what:
		return true
	case <-c.stop:
		return false
	case <-c.ctx.Done():
		return false
	}
}

// ring puts something into a channel that has room for one, if it is empty.
func ring(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}
