package tallygatetest

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/engine"
	"github.com/tallygate/tallygate/internal/tools/input"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// Rules are a rule file's text.
type Rules string

// Source is a rule file's name, or its text as Rules.
type Source interface{ string | Rules }

// Start is the first time of a Harness' clock: the midnight, in UTC, that a Monday begins with. It is the same in
// each run, so that no test fails at the end of a month only.
var Start = time.Date(2026, time.January, 5, 0, 0, 0, 0, time.UTC)

// Harness counts and enforces by a rule file. Make it with New. Its methods may be called by many
// goroutines.
type Harness struct {
	t        testing.TB
	set      *rules.Set
	clock    atomic.Int64 // µs
	table    *enforce.Table
	admitter admitter
	began    time.Time // by the system's clock

	mu     sync.Mutex // held while something is counted
	engine *engine.Engine
	out    engine.Outcome
	ids    int
	told   map[string]bool // that is in the test's log
	over   bool            // the test has ended
}

// New returns a Harness. A mistake in the rules ends the test, with what the compiler says.
func New[S Source](t testing.TB, source S) *Harness {
	t.Helper()
	set, err := compile(source)
	if err != nil {
		t.Fatalf("tallygatetest: %v", err)
	}
	for i := range set.Warnings {
		t.Logf("tallygatetest: %v", &set.Warnings[i])
	}
	h := &Harness{t: t, set: set, engine: engine.NewTelling(set), began: time.Now(), told: map[string]bool{}}
	h.clock.Store(int64(event.FromTime(Start)))
	if h.table, err = enforce.NewTable(enforce.Config{Shards: 1, Now: h.now}); err != nil {
		t.Fatalf("tallygatetest: %v", err)
	}
	h.table.Replace(0, nil)             // it is ready
	h.table.Heartbeat(0, math.MaxInt64) // and never stale
	h.admitter.init(h)
	t.Cleanup(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.over = true
	})
	return h
}

func compile[S Source](source S) (*rules.Set, error) {
	switch source := any(source).(type) {
	case Rules:
		const name = "the test's rules"
		return rules.CompileWith(name, []byte(source), input.Beside(name))
	case string:
		text, err := os.ReadFile(source)
		if err != nil {
			return nil, fmt.Errorf("load rules: %w", err)
		}
		return rules.CompileWith(source, text, input.Beside(source))
	}
	return nil, fmt.Errorf("%T is no source of rules", source) // not reached: Source has no others
}

// Now returns the time.
func (h *Harness) Now() time.Time { return h.now().Time() }

func (h *Harness) now() event.Micros { return event.Micros(h.clock.Load()) }

// Advance moves the clock. Blocks that are over then have ended, windows as well, and permits whose `hold`
// is over are lost.
func (h *Harness) Advance(d time.Duration) {
	h.t.Helper()
	h.moveTo(h.now() + event.FromDuration(d))
}

// AdvanceTo moves the clock to a moment, such as the end of a civil day.
func (h *Harness) AdvanceTo(at time.Time) {
	h.t.Helper()
	h.moveTo(event.FromTime(at))
}

func (h *Harness) moveTo(at event.Micros) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := h.now(); at < now {
		h.t.Fatalf("tallygatetest: the clock is at %v and cannot go back to %v", now, at)
	}
	h.clock.Store(int64(at))
	h.admitter.sweep()
}

// Emit counts an event, as one that a service emits now. A Time that is not set is the clock's, a cost that
// is not set is 1, and an id that is not set is made. One that is malformed fails the test; one that no rule
// counts is in the test's log.
func (h *Harness) Emit(e event.Event) {
	h.t.Helper()
	h.emit(e)
}

// Table is the blocklist as a service has it. It follows the clock.
func (h *Harness) Table() *enforce.Table { return h.table }

// Admitter grants permits, for rules with `strict` and with `scope: instance`, without any doubt.
func (h *Harness) Admitter() enforce.Admitter { return &h.admitter }

// Emitter is for middlewares, in place of an emit.Emitter. Times of the system's clock become the Harness'.
func (h *Harness) Emitter() httplimit.Emitter { return emitter{h} }

// Middleware is httplimit.Middleware, or that of a tallygate.Guard: Admit and Events are filled in. A
// request whose verdict's action is throttle does not wait, unless MaxDelay is set: it would wait by the
// system's clock.
func (h *Harness) Middleware(options httplimit.Options) func(http.Handler) http.Handler {
	h.t.Helper()
	if options.Admit == nil {
		options.Admit = h.Admitter()
	}
	if options.Events == nil {
		options.Events = h.Emitter()
	}
	if options.MaxDelay == 0 {
		options.MaxDelay = -1
	}
	gate, err := httplimit.NewGate(h.table, options)
	if err != nil {
		h.t.Fatalf("tallygatetest: %v", err)
	}
	return gate.Handler
}

// Blocked reports whether someone may not use an API now. who is for example uid=7, or
// ip=192.0.2.1&uid=7: all that the service would know of a request.
func (h *Harness) Blocked(who, api string) bool {
	h.t.Helper()
	return !h.table.CheckDims(api, h.who(who)).Allowed
}

// Verdict returns what is in force for someone and an API: the verdict that decides, else one in shadow mode
// or a notice; nil for none.
func (h *Harness) Verdict(who, api string) *verdict.Verdict {
	h.t.Helper()
	if all := h.table.Verdicts(api, h.who(who)); len(all) > 0 {
		return all[0]
	}
	return nil
}

// Count returns what a limit has counted of a key in the present window. A rule with several limits has
// them as rule/limit.
func (h *Harness) Count(limit, key string) float64 {
	h.t.Helper()
	dims := h.key(key)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.engine.Explain(dims, "", h.now()) {
		if e.Rule == limit {
			return float64(e.Count) / float64(event.One)
		}
	}
	h.t.Fatalf("tallygatetest: Count(%q, %q): %s", limit, key, h.whyNotCounted(limit))
	return 0
}
