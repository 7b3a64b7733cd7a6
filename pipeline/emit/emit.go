// Package emit is the SDK by which an application publishes its users' actions to Kafka.
//
// [Emitter.Emit] never blocks its caller: the event is encoded into a bounded queue, a
// background goroutine sends batches, and what cannot be kept is dropped, counted and
// reported. Delivery is at least once, and a consumer can make it exactly once: every record
// carries the emitter's instance and a sequence per partition (see event.HeaderSequence).
//
// An event's partition is that of Kafka's Java client for its uid (murmur2), so that
// producers of all languages agree; events without a uid take turns.
package emit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/event"
)

// Emitter sends events to Kafka. Make one with New, share it between goroutines, and Close
// it before the program ends.
type Emitter struct {
	cfg       Config
	instance  []byte
	transport *kafka.Transport
	scratch   sync.Pool

	router
	queued budget    // from Emit's acceptance to the acknowledgement or drop
	room   broadcast // there is room in the queue again
	counts counters
	report *reporter
	traces traces

	wake    chan struct{} // there is something for the sender to look at
	closed  atomic.Bool
	closing sync.Once
	abandon context.CancelFunc // ends the sender without waiting for what is queued
	sent    chan struct{}      // the sender has ended
	done    chan struct{}      // and the reporter
}

// New starts an Emitter. It needs no broker yet: events queue up until one answers.
//
// It starts the background goroutines itself, unlike this project's servers, whose Run is called by
// the program that owns them: an application adds this SDK with one line, and an Emitter without a
// running Run would fill up and drop. Close ends them all.
func New(cfg Config) (*Emitter, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("emit: config: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &Emitter{
		cfg:      cfg,
		instance: cfg.Instance,
		scratch:  sync.Pool{New: func() any { return new(scratch) }},
		router:   router{perRecord: cfg.EventsPerRecord, unrouted: lane{perRecord: 1}},
		wake:     make(chan struct{}, 1),
		abandon:  cancel,
		sent:     make(chan struct{}),
		done:     make(chan struct{}),
		transport: &kafka.Transport{
			ClientID:       cfg.ClientID,
			TLS:            cfg.TLS,
			SASL:           cfg.SASL,
			Dial:           cfg.Dial,
			MetadataTopics: []string{cfg.Topic},
		},
	}
	if len(e.instance) == 0 {
		e.instance = make([]byte, 16)
		_, _ = rand.Read(e.instance) // never fails
	}
	e.traces.perSecond = int64(cfg.TracesPerSecond)
	e.report = newReporter(cfg.Logger, &e.counts)
	go newSender(e).run(ctx)
	go func() {
		e.report.run(e.sent)
		close(e.done)
	}()
	return e, nil
}

// Emit queues a copy of the event and reports whether it did; an application may ignore the
// answer, since what is dropped is counted in Stats and told to Config.OnDrop.
//
// It never blocks, whatever the broker does, and allocates nothing of its own. The caller may
// change the event and its Attrs as soon as Emit returns. BrokerTime is not sent. An event without
// a Time counts at the time at which the broker appends it, which is later than now while the
// broker is away: set Time where that matters. Texts are sent in their canonical form: those that
// are too long are shortened, see event.CanonicalUID and event.CanonicalText, and the event stays.
func (e *Emitter) Emit(ev event.Event) bool {
	return e.offer(&ev, 0, true) == nil
}

// ErrClosed says that the Emitter was closed.
var ErrClosed = errors.New("emit: the emitter is closed")

var errQueueFull = errors.New("emit: the queue is full")

// EmitWait is Emit for programs that must not drop, such as one that sends a file: while the queue
// is full it waits, until ctx ends. It returns nil when the event is queued, an error that
// describes an invalid event (counted as dropped), ErrClosed, or ctx's error.
func (e *Emitter) EmitWait(ctx context.Context, ev event.Event) error {
	return e.wait(ctx, &ev, 0)
}

func (e *Emitter) wait(ctx context.Context, ev *event.Event, position uint64) error {
	err := e.offer(ev, position, false)
	if !errors.Is(err, errQueueFull) {
		return err
	}
	e.room.enter()
	defer e.room.leave()
	for {
		room := e.room.next() // before the try, so that no broadcast is missed
		if err := e.offer(ev, position, false); !errors.Is(err, errQueueFull) {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			e.told(ev, ctx.Err())
			return ctx.Err()
		}
	}
}

// Close sends what is queued and ends the background goroutines. From now on Emit drops. When
// ctx ends first, what is still queued is dropped (Undelivered) and the error says how many
// events that were. Further calls wait for the first one's end.
func (e *Emitter) Close(ctx context.Context) error {
	e.closed.Store(true)
	e.closing.Do(func() {
		e.room.broadcast()
		e.wakeSender()
	})
	select {
	case <-e.done:
	case <-ctx.Done():
		e.abandon()
		<-e.done
	}
	e.abandon()
	lost := e.counts.dropped[Undelivered].Load()
	if lost == 0 {
		return nil
	}
	err := fmt.Errorf("emit: close: %d events not delivered", lost)
	if cause := context.Cause(ctx); cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// scratch is a buffer for one event's encoding, outside of any lock.
type scratch struct {
	buf        []byte // the uid, then the JSON, then the trace context
	key, value int    // where the uid and the JSON end
}

func (s *scratch) giveBack(to *sync.Pool) {
	if cap(s.buf) <= 2*event.MaxBytes { // an event far too large must not live on here
		to.Put(s)
	}
}

// offer queues the event, or says why not. A full queue is a drop only if final. A position of 0 is
// none.
func (e *Emitter) offer(ev *event.Event, position uint64, final bool) error {
	s := e.scratch.Get().(*scratch)
	defer s.giveBack(&e.scratch)
	err := e.positioned(position)
	if err == nil {
		err = e.encode(s, ev)
	}
	if err != nil {
		e.drop(Drop{Reason: Invalid, Events: 1, Err: err})
		e.told(ev, err)
		return err
	}
	i := item{key: s.buf[:s.key], value: s.buf[s.key:s.value], trace: s.buf[s.value:], position: position}
	i.cost = i.bytes()
	cost := i.cost
	if !e.queued.take(cost, e.cfg.MaxEvents, e.cfg.MaxBytes) {
		if e.closed.Load() {
			e.drop(Drop{Reason: Closed, Events: 1})
			e.told(ev, ErrClosed)
			return ErrClosed
		}
		if final {
			e.drop(Drop{Reason: QueueFull, Events: 1})
			e.told(ev, errQueueFull)
		}
		return errQueueFull
	}
	// Closed is looked at after the reservation: the sender ends only when it has seen
	// closed first and nothing reserved then, so no event is left behind.
	if e.closed.Load() {
		e.unreserve(1, cost)
		e.wakeSender()
		e.drop(Drop{Reason: Closed, Events: 1})
		e.told(ev, ErrClosed)
		return ErrClosed
	}
	if len(i.trace) == 0 {
		e.told(ev, ErrNotTraced) // before it can be acknowledged
	}
	if e.route(&i) {
		e.wakeSender()
	}
	return nil
}

func (e *Emitter) encode(s *scratch, ev *event.Event) error {
	if !e.cfg.AsIs {
		if ev.Cost == 0 {
			ev.Cost = event.One
		}
		if ev.Time == 0 {
			ev.Time = event.NoTime
		}
	}
	ev.BrokerTime = event.NoTime
	if !ev.IsCanonical() {
		ev.Canonicalize()
	}
	// The record's key and its partition are those of the uid that consumers see.
	s.buf = append(s.buf[:0], ev.UID...)
	s.key = len(s.buf)
	s.buf = event.AppendJSON(s.buf, ev)
	s.value = len(s.buf)
	if !plain(ev, s.value-s.key) {
		if err := ev.Validate(); err != nil {
			return err
		}
	}
	if !ev.Trace.IsZero() && e.traces.take() {
		s.buf = ev.Trace.AppendTo(s.buf)
	}
	if event.In1970(ev.Time) {
		e.counts.in1970.Add(1)
		e.report.look()
	}
	return nil
}

func (e *Emitter) unreserve(events int, cost int64) {
	e.queued.give(events, cost)
	e.room.broadcast()
}

func (e *Emitter) wakeSender() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}
