package aggregate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/fetch"
	"github.com/tallygate/tallygate/pipeline/aggregate/hotkeys"
	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/pipeline/event"
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
	generation uint32              // how often the input's offsets have started over
	expired    []int64             // producer ids of earlier owners that are no more
	end        int64               // of the changelog, as recovered
	start      int64               // of the changelog
	seeks      bool                // the claims start at next; else there is no checkpoint, and they start at the topics' start
	offered    int64               // verdict records below are with Config.Published
	leftovers  map[string]leftover // unpublished verdicts that the owner before has left, by key

	checkpointing chan struct{} // holds one: the regular checkpoints, and the last, take turns
	torn          bool          // whoever has checkpointing: a checkpoint took the changed states, and did not write all of them

	lastCheckpointBody []byte // under mu: the last checkpoint record that was queued, without what is judged

	mu      sync.Mutex
	waiting atomic.Int32 // how many others wait for mu while the partition's goroutine has it
	held    time.Time    // since when hold has mu
	partitionState
	pending  pendings
	moved    movedEnds     // under mu
	endsWait chan struct{} // holds one when ends begin to wait
	commands commands

	clockOfBroker brokerClock

	rules    *ruleVersion // under mu, as all that follows from it
	judged   judged
	passing  *ruleVersion // that a pass judges all keys by; nil while there is none
	matcher  *rules.Matcher
	stepper  *rules.Stepper
	decode   decoders
	gathered gathered
	scratch  []byte  // a block in the making
	targets  []int32 // of an event's forwards
	tally    tally
	full     []*fenced.Writer // that have more queued than they should, see enqueue

	readers  [lanes]atomic.Pointer[fetch.Reader]
	openedAt time.Time // set before opened is
}

// partitionState is what mu guards: everything that events change.
type partitionState struct {
	table       *state.Table
	next        [lanes]int64 // the first offset that is not processed
	covered     [lanes]int64 // the first offset that the last durable checkpoint does not cover
	origins     map[int32]seen
	epochs      laneEpochs // of the leaders that took what is counted
	epochsNoted laneEpochs // as the last durable checkpoint has them

	accepted  bool // offsets have started over, and no checkpoint says so yet
	producers producers
	broker    event.Micros             // the greatest broker time seen
	lastOf    [lanes]event.Micros      // the broker time of the last record of the input; of the loop that of the event forwarded last
	loops     map[int32]*fenced.Writer // by target partition
	side      sideTicket
	hot       *hotkeys.Sketch // of keys that get many events
	exempt    exemptions      // that commands gave
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
		partitionState: partitionState{
			table:     state.New(),
			origins:   map[int32]seen{},
			producers: producers{own: id},
			broker:    event.NoTime,
			lastOf:    [lanes]event.Micros{event.NoTime, event.NoTime},

			epochs:      noEpochs,
			epochsNoted: noEpochs,
			loops:       map[int32]*fenced.Writer{},
			hot:         hotkeys.New(rand.Uint64()),
		},
		pending: pendings{byKey: map[string][]*pendingVerdict{}},
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
	if errors.Is(err, errNewerFormat) || errors.Is(err, rules.ErrNewerState) || errors.Is(err, errFatal) {
		err = p.agg.fail(fmt.Errorf("partition %d: %w", p.id, err))
	}
	p.cancel(err)
	if endsSession(err) {
		p.log.Error("partition failed, and the session ends with it", "error", err)
		p.session.end(fmt.Errorf("partition %d: %w", p.id, err))
	}
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
		if errors.Is(err, errFatal) || errors.Is(err, errNewerFormat) || errors.Is(err, rules.ErrNewerState) {
			err = p.agg.fail(err)
		}
		p.cancel(err)
		return err
	}
	p.run(p.changelog)
	p.run(p.verdicts)
	p.republish()
	if p.accepted {
		// Before the first event: an owner after a crash would drop the marks once more.
		if err := p.checkpoint(p.ctx); err != nil {
			err = fmt.Errorf("take over partition %d: note that offsets start over: %w", p.id, err)
			p.cancel(err)
			p.wg.Wait()
			return err
		}
	}
	keys, next := p.table.Len(), p.next[inputLane]
	if p.seeks {
		p.seek()
	}
	p.agg.metrics.opened(p)
	context.AfterFunc(p.session.Context(), p.bound)
	release() // from here on Close ends it, and the state is read and written with the lock
	p.wg.Go(func() { p.die(p.checkpoints()) })
	p.wg.Go(func() { p.die(p.publishMoved()) })
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
	for l, topic := range []string{inputLane: p.agg.names.Events, loopLane: p.agg.names.Loop} {
		p.session.ResetOffset(topic, p.id, p.next[l], "") // sarama moves a mark back by the one,
		p.session.MarkOffset(topic, p.id, p.next[l], "")  // and forward by the other
	}
}

// errReleaseTook is why a partition ended that could not be released in good order in time.
var errReleaseTook = fmt.Errorf("%w, but not in time", errClosed)

// bound ends the partition when it is still there some time after its session: whoever waits for
// it does not wait for a Kafka that takes no appends.
func (p *partition) bound() {
	late := time.AfterFunc(closeWithin, func() {
		if p.ctx.Err() == nil {
			p.log.Warn("the partition could not be released in good order in time, its events will be taken up again", "waited_seconds", closeWithin.Seconds())
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

// hold is lock for checkpoints: letGo ends it, and says in a metric how long it took.
func (p *partition) hold() {
	p.lock()
	p.held = time.Now()
}

func (p *partition) letGo() {
	pause := time.Since(p.held)
	p.mu.Unlock()
	p.agg.metrics.pauses.Observe(pause.Seconds())
}

// begin is where a lane's claim begins.
func (p *partition) begin(l lane) int64 {
	p.lock()
	defer p.mu.Unlock()
	return p.next[l]
}

// read begins to read a lane, from where it goes on.
func (p *partition) read(l lane) *fetch.Reader {
	topic := p.topicOf(l)
	next, epoch := p.behind(l)
	r := p.agg.fetcher.ReadBehind(topic, p.session.topics[topic].ID, p.id, next, epoch)
	p.readers[l].Store(r)
	return r
}

func (p *partition) topicOf(l lane) string {
	if l == loopLane {
		return p.agg.names.Loop
	}
	return p.agg.names.Events
}

func (p *partition) laneOf(topic string) lane {
	if topic == p.agg.names.Loop {
		return loopLane
	}
	return inputLane
}
