package admit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/logonce"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/enforce/shape"
)

// Admitter asks for permits. Make it with New, and call Run. Its methods may be called by many
// goroutines.
type Admitter struct {
	cfg     Config
	book    *book
	cancels cancels
	spares  spares
	kept    kept
	shares  shares
	lines   shape.Shaper
	free    Permit // of requests that nothing limits
	counts  counts
	doubts  logonce.Line
	refused refused
	late    logonce.Line

	attempts sync.Pool

	began  time.Time
	prefix string // of ids: nobody else has it
	ids    atomic.Uint64
}

// Stats counts requests by their outcome, and those that wait.
type Stats struct {
	Admitted, Denied, InDoubt uint64  // of those that a strict rule concerns
	Ahead                     uint64  // of Admitted: without a question
	Refused                   Refused // of Denied
	Questions, Unanswered     uint64
	Cancelled                 uint64 // permits that were given back
	CancelsLost               uint64 // for which there was no room: they count as lost
	CancelsWaiting            int
	Version                   uint64 // the newest rules; 0: none
	Ready                     bool   // the rules are known
	Failing                   bool   // the rules cannot be read from Redis now
	LastError                 error  // of reading them; nil when there was none
}

type counts struct{ admitted, denied, inDoubt, ahead, questions, unanswered atomic.Uint64 }

// New returns an Admitter. It knows no rules until Run has read them, unless it has Config.Rules.
func New(cfg Config) (*Admitter, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	a := &Admitter{cfg: cfg, free: Permit{Admitted: true}, began: time.Now(), prefix: ours + strconv.FormatUint(rand.Uint64(), 36) + "-"}
	a.attempts.New = func() any { return &attempt{a: a} }
	a.book = newBook(&a.cfg)
	a.cancels.init()
	a.spares.init(&a.cancels)
	return a, nil
}

// Run follows the rules and gives permits back, until ctx ends. Then it gives back for two seconds at
// most what is left, and returns nil. Permits that end later, of requests that still run, are left in Redis
// until their hold is over, and the log says so: call it off behind the last request. While Redis is away, or refuses the user, the password or a right,
// it retries: the log says so once at first, when the reason changes, and at the end.
func (a *Admitter) Run(ctx context.Context) error {
	if a.cfg.Redis == nil {
		<-ctx.Done()
		return nil
	}
	a.cancels.end(nil)
	var following, cancelling sync.WaitGroup
	following.Go(func() { a.book.run(ctx) })
	following.Go(func() { a.spares.run(ctx, a.now) })
	draining, drain := context.WithCancel(context.WithoutCancel(ctx)) // give back what is left, and end
	defer drain()
	giving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	cancelling.Go(func() { a.cancels.run(draining, giving, a.book) })
	following.Wait()
	drain()
	timer := time.AfterFunc(drainWithin, stop)
	defer timer.Stop()
	cancelling.Wait()
	a.cancels.end(a.leftBehind)
	return nil
}

// leftBehind logs permits that nobody gives back any more.
func (a *Admitter) leftBehind(n int) {
	if left, due := a.late.Due(); due {
		a.cfg.Logger.Warn("permits end behind the end of their Admitter: Redis holds them until their hold is over; stop it when the last request has ended", "permits", n, "left_out", left)
	}
}

// Stats returns what has become of requests so far.
func (a *Admitter) Stats() Stats {
	c := &a.counts
	s := Stats{
		Admitted: c.admitted.Load(), Denied: c.denied.Load(), InDoubt: c.inDoubt.Load(), Ahead: c.ahead.Load(),
		Questions: c.questions.Load(), Unanswered: c.unanswered.Load(), Refused: a.refused.stats(),
	}
	s.Cancelled, s.CancelsLost, s.CancelsWaiting = a.cancels.stats()
	s.Failing, _, s.LastError = a.book.redis.State()
	if p := a.book.current.Load(); p != nil {
		s.Ready = true
		if p.newest != nil {
			s.Version = protocol.RulesNumber(p.newest.number)
		}
	}
	return s
}

// Request describes an action that needs a permit.
type Request struct {
	API string
	// Dims identify the caller: uid, ip and attrs.NAME, as in a check.
	Dims []event.Dim
	// Attrs are more attributes, as far as they are known: those of the event.
	Attrs []event.Attr
	// Cost is the event's at most; 0 is 1.
	Cost event.Decimal
	// ID, if set, names the action: asked for again within its hold, it gets the same permit. Once the
	// action was counted, or its permit has ended, a request with the ID is denied, as is one with the ID
	// of another action that is under way.
	ID string
	// MaxDelay bounds its wait for its turn under a rule whose action is throttle; 0 is Config.MaxDelay, and a
	// negative value does not wait.
	MaxDelay time.Duration
}

func (t *attempt) maxDelay() time.Duration { return cmp.Or(t.r.MaxDelay, t.a.cfg.MaxDelay) }

// ErrRequest is wrapped by errors that say what is wrong with a Request.
var ErrRequest = errors.New("admit: a request that is wrong")

// maxID is of a Request's. More is appended: a permit's id has event.MaxID bytes at most.
const maxID = event.MaxID - 8

func (r *Request) validate() error {
	switch {
	case len(r.ID) > maxID:
		return fmt.Errorf("%w: its ID has %d bytes, at most %d are allowed", ErrRequest, len(r.ID), maxID)
	case r.Cost < 0:
		return fmt.Errorf("%w: its Cost is %v, want none negative", ErrRequest, r.Cost)
	}
	return nil
}

// Admit asks whether a request may go on, under all rules for it or none. It returns an error only for a
// wrong request and for a context that ended. Where no rule is strict, or of this process, it is one
// atomic load.
func (a *Admitter) Admit(ctx context.Context, r Request) (*Permit, error) {
	p := a.book.current.Load()
	if p != nil && p.ahead && r.plain() {
		if permit := a.quickly(p, &r); permit != nil {
			return permit, nil
		}
	}
	if p != nil && a.cfg.Events == nil && (p.idle || p.instance == nil && !p.concerns(r.API)) {
		return &a.free, nil
	}
	return a.admit(ctx, r)
}

func (a *Admitter) admit(ctx context.Context, r Request) (*Permit, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	one := a.attempts.Get().(*attempt)
	defer one.end()
	one.r = r
	permit, err := one.run(ctx)
	if err == nil && one.line.key != "" {
		permit, err = a.wait(ctx, one, permit)
	}
	if err != nil || !permit.Admitted {
		one.instance.Done()
		for i := range one.local {
			one.local[i].release()
		}
	}
	if err != nil {
		return nil, err
	}
	permit.count(&a.counts)
	return permit, nil
}

// Unasked lets a request in without asking anybody: for a time when nothing is to be denied.
func (a *Admitter) Unasked(r Request) *Permit {
	if a.cfg.Events == nil {
		return &a.free
	}
	one := a.attempts.Get().(*attempt)
	defer one.end()
	one.r = r
	one.e = r.event(one.attrs[:0])
	return one.permit("")
}

// now reads the clocks.
func (a *Admitter) now() protocol.Clock {
	now := time.Now()
	return protocol.Clock{Wall: event.FromTime(now), Mono: event.FromDuration(now.Sub(a.began)) + event.Second}
}

// ours begins the ids that Admitters make. A request with one asks for its permit again, which its answer
// had named.
const ours = "~"

func isOurs(id string) bool { return strings.HasPrefix(id, ours) }

// newID names a request. Nothing else ever has the name.
func (a *Admitter) newID() string {
	var buf [40]byte
	return string(strconv.AppendUint(append(buf[:0], a.prefix...), a.ids.Add(1), 36))
}
