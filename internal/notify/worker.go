package notify

import (
	"context"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/base/logonce"
	"github.com/tallygate/tallygate/internal/notify/config"
	"github.com/tallygate/tallygate/internal/notify/group"
	"github.com/tallygate/tallygate/internal/notify/note"
	"github.com/tallygate/tallygate/internal/notify/receive"
	"github.com/tallygate/tallygate/internal/notify/source"
)

// worker tells one receiver. Its loop, run, owns the book; everything else sends it what happens. One message is
// on its way at a time, so that a receiver gets them in order, and a slow one is not flooded.
type worker struct {
	*config.Receiver
	routes map[string]*config.Route
	to     receive.Receiver
	told   *told
	m      *metrics
	log    *slog.Logger

	sessions chan session
	entries  chan entry
	states   chan []note.Note // the latest ones
	losses   chan int64
	done     chan struct{} // closed when run has returned
	joined   atomic.Bool   // there is a session
	owns     atomic.Int32  // so many partitions

	book       *group.Book
	audit      source.Audit
	session    *session
	without    time.Time // since when there is no session
	sending    *sending
	committed  map[int32]group.Place
	lags       map[int32]time.Time // by partition: the time of the last entry, where more are there
	unreadable logonce.Line
	failing    logonce.Line // commits
}

// session is a beginning, with places, or an end.
type session struct {
	places map[int32]group.Place
	commit func(map[int32]group.Place) error
	done   chan struct{} // closed when the worker has taken it in
}

// entry is one of the audit.
type entry struct {
	partition int32
	offset    int64
	value     []byte
	at        time.Time
	last      bool // no further one is there yet
}

// sending is a message on its way.
type sending struct {
	batch  *group.Batch
	cancel context.CancelFunc
	result chan error // nil: it is there
}

// told remembers the states that a receiver was told last, and the times. It outlives the worker when the file
// changes.
type told struct {
	at     map[string]time.Time
	state  map[string]note.Note
	queued map[string]bool // on its way
}

func newTold() *told {
	return &told{map[string]time.Time{}, map[string]note.Note{}, map[string]bool{}}
}

const (
	// aloneAfter is the time after which a program without a session tells of states all the same: that Kafka is gone
	// is what people want to know.
	aloneAfter = 20 * time.Second

	commitEvery = 2 * time.Second
	endWithin   = 3 * time.Second // a message on its way, when a session ends
)

func newWorker(c *config.Config, r *config.Receiver, to receive.Receiver, t *told, m *metrics, log *slog.Logger) *worker {
	w := &worker{
		Receiver: r, routes: map[string]*config.Route{}, to: to, told: t, m: m, log: log.With("receiver", r.Name),
		sessions: make(chan session), entries: make(chan entry), states: make(chan []note.Note, 1), losses: make(chan int64, 16), done: make(chan struct{}),
		without: time.Now(), lags: map[int32]time.Time{},
	}
	cfg := group.Config{Receiver: r.Name, Shown: r.Shown, PerSubject: r.Type == "alertmanager", MaxAge: r.MaxAge, Link: c.Console}
	for _, route := range c.RoutesTo(r.Name) {
		w.routes[route.Name] = route
		is := group.Route{Name: route.Name, Wants: route.Wants, Wait: route.Wait}
		if !cfg.PerSubject { // Alertmanager groups and bounds by itself, and wants repeats on time
			is.Every, is.Messages, is.Per = route.Every, route.Messages, route.Per
		}
		cfg.Routes = append(cfg.Routes, is)
	}
	w.book = group.New(cfg)
	clear(t.queued)
	m.of(r.Name)
	return w
}

// run works until ctx ends.
func (w *worker) run(ctx context.Context) error {
	defer close(w.done)
	defer w.to.Close()
	defer w.finish(ctx)
	tick := time.NewTicker(commitEvery)
	defer tick.Stop()
	for {
		wake := w.start(ctx)
		timer := time.NewTimer(wake)
		var entries chan entry
		if w.session != nil && !w.book.Full() {
			entries = w.entries
		}
		var result chan error
		if w.sending != nil {
			result = w.sending.result
		}
		select {
		case e := <-entries:
			w.take(e)
		case err := <-result:
			w.sent(err)
		case s := <-w.sessions:
			w.change(ctx, s)
		case active := <-w.states:
			w.see(active)
		case n := <-w.losses:
			w.book.Lose(int(n))
		case <-tick.C:
			w.commit()
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
		w.measure()
	}
}

// start sends the message that is due, if one is, and returns how long nothing is to be done.
func (w *worker) start(ctx context.Context) time.Duration {
	const long = time.Hour
	if w.sending != nil {
		return long
	}
	b, next := w.book.Next(time.Now())
	if b == nil {
		if next.IsZero() {
			return long
		}
		return max(time.Until(next), time.Millisecond)
	}
	if route := w.routes[b.Route]; route != nil {
		if err := route.Render(b.Message); err != nil {
			w.log.Error("a template cannot be filled in; the message has its default text", "route", b.Route, "error", err)
		}
	}
	var before func() error
	if b.Entries && w.session != nil {
		commit, places := w.session.commit, w.book.Progress()
		before = func() error { return commit(places) }
	}
	sctx, cancel := context.WithCancel(ctx)
	w.sending = &sending{batch: b, cancel: cancel, result: make(chan error, 1)}
	go func(s *sending) { s.result <- w.deliver(sctx, s.batch.Message, before) }(w.sending)
	return long
}

// take takes in an entry.
func (w *worker) take(e entry) {
	n, err := w.audit.Note(e.value, e.at)
	if err != nil {
		w.m.dropped.WithLabelValues(w.Name, dropUnreadable).Inc()
		if left, due := w.unreadable.Due(); due {
			w.log.Warn("an entry of the audit cannot be read", "partition", e.partition, "offset", e.offset, "error", err, "left_out", left)
		}
	}
	if dropped := w.book.Read(e.partition, e.offset, n, time.Now()); dropped > 0 {
		w.m.dropped.WithLabelValues(w.Name, dropOld).Add(float64(dropped))
	}
	w.lags[e.partition] = e.at
	if e.last {
		delete(w.lags, e.partition)
	}
}

// sent takes in what became of the message on its way.
func (w *worker) sent(err error) {
	s := w.sending
	s.cancel()
	w.sending = nil
	if err != nil && !receive.Failed(err).Lost { // it was cut off
		return
	}
	if err != nil {
		w.m.dropped.WithLabelValues(w.Name, dropRefused).Add(float64(s.batch.Count))
		w.log.Error("the receiver refuses a message, which is dropped", "kind", string(s.batch.Kind), "delivery", s.batch.ID, "error", err)
	}
	w.told.done(s.batch.States, time.Now())
	w.book.Done(time.Now())
	w.commit()
}

// change takes in that a session begins or ends.
func (w *worker) change(ctx context.Context, s session) {
	defer close(s.done)
	w.joined.Store(s.places != nil)
	w.owns.Store(int32(len(s.places)))
	if w.sending != nil && w.sending.batch.Entries { // its entries may be another's from now on
		timer := time.NewTimer(endWithin)
		defer timer.Stop()
		select {
		case err := <-w.sending.result:
			w.sent(err)
		case <-timer.C:
			w.cut()
		case <-ctx.Done():
			w.cut()
		}
	}
	if s.places == nil {
		w.commit()
		w.book.End()
		w.session, w.without = nil, time.Now()
		clear(w.lags)
		return
	}
	w.session, w.audit, w.committed = &s, source.Audit{}, s.places
	w.book.Begin(s.places)
	if _, leads := s.places[0]; !leads && len(w.told.at) > 0 {
		*w.told = *newTold() // another one tells of states now
	}
}

// cut ends the message on its way, and waits for that.
func (w *worker) cut() {
	w.sending.cancel()
	w.sent(<-w.sending.result)
}

// finish ends what is under way when the worker stops.
func (w *worker) finish(context.Context) {
	if w.sending != nil {
		w.cut()
	}
	w.commit()
	w.m.gone(w.Name)
}

// commit tells Kafka how far the receiver has been told, if that has changed.
func (w *worker) commit() {
	if w.session == nil {
		return
	}
	places := w.book.Progress()
	if maps.Equal(places, w.committed) {
		return
	}
	if err := w.session.commit(places); err != nil {
		w.uncommitted(err)
		return
	}
	w.committed = places
}

// uncommitted tells the log that Kafka does not remember what was told: it is told again after a crash.
func (w *worker) uncommitted(err error) {
	if left, due := w.failing.Due(); due {
		w.log.Warn("Kafka does not remember how far the receiver was told; trying again", "error", err, "left_out", left)
	}
}

// measure sets the gauges.
func (w *worker) measure() {
	w.m.backlog.WithLabelValues(w.Name).Set(float64(w.book.Waiting()))
	oldest := w.book.Oldest()
	for _, at := range w.lags {
		if oldest.IsZero() || at.Before(oldest) {
			oldest = at
		}
	}
	lag := 0.0
	if !oldest.IsZero() {
		lag = max(0, time.Since(oldest).Seconds())
	}
	w.m.lag.WithLabelValues(w.Name).Set(lag)
}

// The rest is for other goroutines.

// begin starts a session. It returns when the worker has taken it in.
func (w *worker) begin(ctx context.Context, places map[int32]group.Place, commit func(map[int32]group.Place) error) {
	w.tell(session{places: places, commit: commit, done: make(chan struct{})}, ctx.Done())
}

// end ends the session.
func (w *worker) end() { w.tell(session{done: make(chan struct{})}, nil) }

func (w *worker) tell(s session, given <-chan struct{}) {
	select {
	case w.sessions <- s:
		<-s.done
	case <-given:
	case <-w.done:
	}
}

// lose says that the topic has deleted entries that the receiver was not told.
func (w *worker) lose(partition int32, entries int64) {
	w.m.dropped.WithLabelValues(w.Name, dropRetention).Add(float64(entries))
	w.log.Error("the audit topic has deleted entries before the receiver was told", "partition", partition, "records", entries)
	select {
	case w.losses <- entries:
	case <-w.done:
	}
}

// read hands over an entry; false: the session or the worker has ended.
func (w *worker) read(ctx context.Context, m *sarama.ConsumerMessage, end int64) bool {
	select {
	case w.entries <- entry{m.Partition, m.Offset, m.Value, m.Timestamp, m.Offset+1 >= end}:
		return true
	case <-ctx.Done():
	case <-w.done:
	}
	return false
}

// show tells which states last.
func (w *worker) show(active []note.Note) {
	for {
		select {
		case w.states <- active:
			return
		case <-w.done:
			return
		default:
		}
		select {
		case <-w.states: // an older one
		default:
		}
	}
}
