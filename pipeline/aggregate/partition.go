package aggregate

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/rules"
)

// partition is one owned partition, from takeover to release, or until it fails.
type partition struct {
	agg *Aggregator
	log *slog.Logger
	id  int32
	of  int32 // how many partitions there are

	session *session
	ctx     context.Context // ends when the partition dies or is closed
	working context.Context // ends with ctx, and when the session is over: no event is applied any more
	cancel  context.CancelCauseFunc
	wg      sync.WaitGroup // the writers and the checkpointer
	opened  atomic.Bool
	stop    chan struct{} // closed by Close: the last checkpoint is due

	identity   *fenced.Identity
	changelog  *fenced.Writer
	verdicts   *fenced.Writer
	expired    []int64 // producer ids of earlier owners that are no more
	startsOver bool    // a checkpoint is due before the first event
	seeks      bool    // the claims start where the shard goes on; else there is no checkpoint, and they start at the topics' start
	offered    int64   // under mu: verdict records below are with Config.Published

	checkpointing chan struct{} // holds one: the regular checkpoints, and the last, take turns

	mu       sync.Mutex
	waiting  atomic.Int32 // how many others wait for mu while the partition's goroutine has it
	held     time.Time    // since when lockTimed has mu
	shard    *shard.Shard // under mu, as what follows
	record   record.Record
	rules    *ruleVersion             // that the shard counts by
	passing  *ruleVersion             // that a pass judges all keys by; nil while there is none
	loops    map[int32]*fenced.Writer // by target partition
	full     []*fenced.Writer         // that have more queued than they should, see enqueue
	side     sideTicket
	acks     acks
	endsWait chan struct{} // holds one when ends begin to wait
	commands commands

	clockOfBroker brokerClock

	readers  [shard.Sources]atomic.Pointer[kafkalog.Reader]
	openedAt time.Time // set before opened is
}

func newPartition(a *Aggregator, id int32, s *session) *partition {
	// Not the session's context: it ends before the last checkpoint.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(s.Context()))
	working, rest := context.WithCancel(ctx)
	atEnd := context.AfterFunc(s.Context(), rest)
	context.AfterFunc(ctx, func() { atEnd() })
	return &partition{
		agg:     a,
		log:     a.log.With("partition", id),
		id:      id,
		of:      a.found.Load().Partitions,
		session: s,
		ctx:     ctx,
		working: working,
		cancel:  cancel,
		stop:    make(chan struct{}),

		checkpointing: make(chan struct{}, 1),
		endsWait:      make(chan struct{}, 1),
		acks:          acks{wake: make(chan struct{}, 1)},
		loops:         map[int32]*fenced.Writer{},
	}
}

// shardConfig is the partition's as its shard is told.
func (p *partition) shardConfig() shard.Config {
	topic := func(name string) shard.Topic { return shard.Topic{Name: name, ID: p.topicID(name)} }
	names := p.agg.names
	return shard.Config{
		ID: p.id, Of: p.of,
		Topics:         shard.Topics{Events: topic(names.Events), Loop: topic(names.Loop), Table: topic(names.Table), Verdicts: topic(names.Verdicts)},
		ProducerTimes:  p.agg.cfg.BrokerTime == brokerTimeCreate,
		AcceptNewTopic: p.agg.cfg.AcceptNewTopic,
		MaxDeadLetter:  min(maxDeadLetter, sideBatch(p.agg.found.Load())-sideRoom),
		Instance:       p.agg.instance(),
		Seed:           rand.Uint64(),
	}
}

// errClosed is why a partition that was released in good order ended.
var errClosed = errors.New("aggregate: the partition was released")

// die ends the partition: what was not durable is replayed by whoever takes it over, which is
// this instance again, unless the error is one that ends the session.
func (p *partition) die(err error) {
	if err == nil || p.ctx.Err() != nil {
		return
	}
	if isFinal(err) {
		err = p.agg.fail(fmt.Errorf("partition %d: %w", p.id, err))
	}
	p.cancel(err)
	if endsSession(err) {
		p.log.Error("partition failed; the session ends with it", "error", err)
		p.session.end(fmt.Errorf("partition %d: %w", p.id, err))
	}
}

// isFinal reports whether an error is the instance's end: the next takeover would meet it again.
func isFinal(err error) bool {
	return slices.ContainsFunc([]error{errFatal, shard.ErrFinal, shard.ErrNewerFormat, rules.ErrNewerState}, func(final error) bool { return errors.Is(err, final) })
}

// Open takes the partition over: new epoch, fence records, recovery up to the fence.
func (p *partition) Open() error {
	began := time.Now()
	release := context.AfterFunc(p.session.Context(), func() { p.cancel(errClosed) })
	err := p.agg.book.refresh(p.ctx) // no older version than any checkpoint's
	if err == nil {
		p.beginWith(p.agg.book.current.Load())
		err = p.takeOver(p.ctx)
	}
	if err != nil {
		err = fmt.Errorf("take over partition %d: %w", p.id, err)
		if isFinal(err) {
			err = p.agg.fail(err)
		}
		p.cancel(err)
		return err
	}
	p.run(p.changelog)
	p.run(p.verdicts)
	p.wg.Go(func() { p.die(p.ended(p.acknowledge())) })
	if p.startsOver {
		// Before the first event: an owner after a crash would drop the marks once more.
		if err := p.checkpoint(p.ctx); err != nil {
			err = fmt.Errorf("take over partition %d: note that offsets start over: %w", p.id, err)
			p.cancel(err)
			p.wg.Wait()
			return err
		}
	}
	keys, next := p.keysAndNext()
	if p.seeks {
		p.seek()
	}
	p.agg.metrics.opened(p)
	context.AfterFunc(p.session.Context(), p.bound)
	release() // from here on Close ends it, and the state is read and written with the lock
	p.wg.Go(func() { p.die(p.checkpoints()) })
	p.wg.Go(func() { p.die(p.publishEnds()) })
	p.wg.Go(func() { p.die(p.ended(p.identity.Run(p.ctx))) })
	p.openedAt = time.Now()
	p.opened.Store(true)
	p.use(p.agg.book.current.Load())
	p.log.Info("partition taken over", "keys", keys, "next_offset", next, "took_seconds", time.Since(began).Seconds())
	return nil
}

// run lets a writer write until the partition ends.
func (p *partition) run(w *fenced.Writer) {
	p.wg.Go(func() { p.die(p.ended(w.Run(p.ctx))) })
}

// ended leaves out the error of a goroutine that was told to end.
func (p *partition) ended(err error) error {
	if p.ctx.Err() != nil {
		return nil
	}
	return err
}

// seek notes with the group where the claims start: right after what the checkpoint covers, whatever
// offset it has. Where there is no checkpoint the group is left without an offset: one that is there
// tells that a checkpoint was.
func (p *partition) seek() {
	for src := range shard.Sources {
		topic, next := p.topicOf(src), p.begin(src)
		p.session.ResetOffset(topic, p.id, next, "") // sarama moves a mark back by the one,
		p.session.MarkOffset(topic, p.id, next, "")  // and forward by the other
	}
}

// errReleaseTook is why a partition ended that could not be released in good order in time.
var errReleaseTook = fmt.Errorf("%w, but not in time", errClosed)

// bound ends the partition when it is still there some time after its session: whoever waits for
// it does not wait for a Kafka that takes no appends.
func (p *partition) bound() {
	late := time.AfterFunc(closeWithin, func() {
		if p.ctx.Err() == nil {
			p.log.Warn("the partition could not be released in time; its events will be replayed", "waited_seconds", closeWithin.Seconds())
			p.cancel(errReleaseTook)
		}
	})
	context.AfterFunc(p.ctx, func() { late.Stop() })
}

// Close makes everything durable, if that is still ours to do, and ends the partition.
func (p *partition) Close() error {
	close(p.stop)
	if p.opened.Load() {
		p.lastCheckpoint()
	}
	p.lock() // nothing new begins from here on
	p.cancel(errClosed)
	p.mu.Unlock()
	p.wg.Wait()
	p.agg.forget(p)
	if pub := p.agg.cfg.Published; pub != nil {
		pub.Disown(p.id)
	}
	p.agg.metrics.closed(p)
	return nil
}

// lock is for all but the partition's own goroutine, which lets others in between events
// when it sees that they wait.
func (p *partition) lock() {
	p.waiting.Add(1)
	p.mu.Lock()
	p.waiting.Add(-1)
}

// lockTimed is lock for checkpoints: unlockTimed says in a metric how long it took.
func (p *partition) lockTimed() {
	p.lock()
	p.held = time.Now()
}

func (p *partition) unlockTimed() {
	pause := time.Since(p.held)
	p.mu.Unlock()
	p.agg.metrics.pauses.Observe(pause.Seconds())
}

// clock is what time it is.
func (p *partition) clock() shard.Clock {
	c := shard.Clock{Local: now(), Broker: event.NoTime}
	if at, ok := p.clockOfBroker.now(); ok {
		c.Broker = at
	}
	return c
}

// begin is where a source's claim begins.
func (p *partition) begin(src shard.Source) int64 {
	p.lock()
	defer p.mu.Unlock()
	return p.shard.Next(src)
}

func (p *partition) keysAndNext() (keys int, next int64) {
	p.lock()
	defer p.mu.Unlock()
	return p.shard.Keys(), p.shard.Next(shard.Input)
}

// read begins to read a source, from where it goes on.
func (p *partition) read(src shard.Source) *kafkalog.Reader {
	topic := p.topicOf(src)
	p.lock()
	next, epoch := p.shard.Behind(src)
	p.mu.Unlock()
	r := p.agg.fetcher.ReadBehind(topic, p.session.topics[topic].ID, p.id, next, epoch)
	p.readers[src].Store(r)
	return r
}

func (p *partition) topicOf(src shard.Source) string {
	if src == shard.Loop {
		return p.agg.names.Loop
	}
	return p.agg.names.Events
}

func (p *partition) sourceOf(topic string) shard.Source {
	if topic == p.agg.names.Loop {
		return shard.Loop
	}
	return shard.Input
}

// topicID is Kafka's id of a topic, as it was when the session began.
func (p *partition) topicID(topic string) string {
	id := p.session.topics[topic].ID
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// ownTopics are those that cannot be replaced by another of the same name in silence.
func ownTopics(n topics.Names) []string {
	return []string{n.Events, n.Loop, n.Table, n.Verdicts}
}
