package enforce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Config says how a Table keeps time and house. Its zero value is good.
type Config struct {
	// Shards is how many shards the blocklist has; 0 is 1. The table is ready when it has had a
	// snapshot of each.
	Shards int
	// Resolution is how often Run moves the clock that Check goes by; 0 is 5 ms. A verdict is enforced for at
	// most that much longer than it says; on a machine that doesn't let Run run in time, until it does. The
	// middleware judges those who have a verdict by the system's clock.
	Resolution time.Duration
	// Sweep is how often Run frees the memory of verdicts that have run out; 0 is 30 s.
	Sweep time.Duration
}

func (c *Config) setDefaults() {
	c.Shards = cmp.Or(c.Shards, 1)
	c.Resolution = cmp.Or(c.Resolution, 5*time.Millisecond)
	c.Sweep = cmp.Or(c.Sweep, 30*time.Second)
}

func (c *Config) validate() error {
	var errs []error
	if c.Shards < 1 {
		errs = append(errs, fmt.Errorf("enforce: Shards is %d, want at least 1", c.Shards))
	}
	if c.Resolution < 0 || c.Sweep < 0 {
		errs = append(errs, fmt.Errorf("enforce: Resolution is %v and Sweep %v, want neither negative", c.Resolution, c.Sweep))
	}
	return errors.Join(errs...)
}

// Table is the verdicts in force, in memory. Make it with NewTable. All its methods may be called by many
// goroutines; checks take no lock, allocate nothing and never wait for a change.
type Table struct {
	cfg   Config
	index atomic.Pointer[index]
	clock atomic.Int64 // the coarse clock; 0 while Run isn't running
	size  atomic.Int64 // verdicts held
	born  event.Micros

	mu      sync.Mutex // held by whoever changes the table
	entries int        // keys held
	flagged int        // lines of the index that overflowed since it was made
	salt    uint64     // of the latest shape
	rounds  []uint64   // how many snapshots each shard has had
	ready   atomic.Int32
	applied []atomic.Int64 // up to when each shard is in step
}

// NewTable returns an empty table. It works at once, but what has run out is forgotten only by Run.
func NewTable(cfg Config) (*Table, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	t := &Table{cfg: cfg, born: now(), rounds: make([]uint64, cfg.Shards), applied: make([]atomic.Int64, cfg.Shards)}
	t.index.Store(newIndex(minLines))
	return t, nil
}

func now() event.Micros { return event.FromTime(time.Now()) }

// Run keeps the table's clock and frees what has run out, until ctx ends; it then returns nil. Without it
// checks read the system's clock, which costs more than all the rest.
func (t *Table) Run(ctx context.Context) error {
	tick := time.NewTicker(t.cfg.Resolution)
	defer tick.Stop()
	sweep := time.NewTicker(t.cfg.Sweep)
	defer sweep.Stop()
	t.clock.Store(int64(now()))
	defer t.clock.Store(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			t.clock.Store(int64(now()))
		case <-sweep.C:
			t.sweep(now())
		}
	}
}

// Now returns the time that checks go by: at most the Config's Resolution behind the system's clock.
func (t *Table) Now() event.Micros {
	if c := t.clock.Load(); c != 0 {
		return event.Micros(c)
	}
	return now()
}

// Decision is the answer to a check.
type Decision struct {
	Allowed bool             // false when a verdict denies; one whose action is log doesn't
	Action  verdict.Action   // of the verdict that decides
	Rule    string           // its rule; "" when none does
	Until   event.Micros     // when it ends
	At      event.Micros     // the moment the check was judged at
	Verdict *verdict.Verdict // the verdict itself, not to be changed; nil when none decides
}

// RetryAfter returns in how many whole seconds, rounded up, the verdict ends; 0 when the check was allowed.
func (d Decision) RetryAfter() int64 {
	if d.Allowed {
		return 0
	}
	left := d.Until - d.At
	return int64(max(left-1, 0)/event.Second) + 1
}

func (h *held) decision(at event.Micros) Decision {
	return Decision{Allowed: h.action == verdict.ActLog, Action: h.action, Rule: h.rule, Until: h.until, At: at, Verdict: h.verdict}
}

// Check answers whether the user may use the API now. Verdicts on keys with other dimensions than
// uid don't count: CheckDims takes those.
func (t *Table) Check(api, uid string) Decision {
	at := t.Now()
	if h := t.ofUID(at, api, uid); h != nil {
		return h.decision(at)
	}
	return Decision{Allowed: true, At: at}
}

// CheckAt is Check at a moment.
func (t *Table) CheckAt(at event.Micros, api, uid string) Decision {
	if h := t.ofUID(at, api, uid); h != nil {
		return h.decision(at)
	}
	return Decision{Allowed: true, At: at}
}

// ofUID returns the verdict on the key uid that decides; nil when there is none. It returns a pointer, and both its
// callers build the Decision, because handing a Decision on costs as much as finding it.
func (t *Table) ofUID(at event.Micros, api, uid string) *held {
	x := t.index.Load()
	if x.uid == nil || uid == "" {
		return nil
	}
	e := x.findUID(uid)
	if e == nil {
		return nil
	}
	return e.best(nil, api, at)
}

// CheckDims answers whether someone with these dimensions (uid, ip, attrs.NAME, each at most once)
// may use the API now. ip/64 follows from ip.
func (t *Table) CheckDims(api string, dims []event.Dim) Decision {
	return t.CheckDimsAt(t.Now(), api, dims)
}

// CheckDimsAt is CheckDims at a moment.
func (t *Table) CheckDimsAt(at event.Micros, api string, dims []event.Dim) Decision {
	x := t.index.Load()
	if len(dims) == 0 {
		return Decision{Allowed: true, At: at}
	}
	q := query{dims: dims, addr: new(address)}
	var best *held
	for _, s := range x.shapes {
		if e := x.find(s, &q); e != nil {
			best = e.best(best, api, at)
		}
	}
	if best != nil {
		return best.decision(at)
	}
	return Decision{Allowed: true, At: at}
}

// known reports whether there are verdicts on any key of these dimensions.
func (t *Table) known(dims []event.Dim) bool {
	x := t.index.Load()
	if len(dims) == 0 {
		return false
	}
	q := query{dims: dims, addr: new(address)}
	for _, s := range x.shapes {
		if x.find(s, &q) != nil {
			return true
		}
	}
	return false
}

// Len returns how many verdicts the table holds, those that have run out and are not swept yet included.
func (t *Table) Len() int { return int(t.size.Load()) }

// Ready reports whether the table has had a complete snapshot of every shard.
func (t *Table) Ready() bool { return int(t.ready.Load()) == t.cfg.Shards }

// Staleness returns how far the table is behind the blocklist: the time since the moment up to which
// all shards are known to be in step, or since NewTable when a shard never was.
func (t *Table) Staleness() time.Duration {
	least := event.Micros(t.applied[0].Load())
	for i := range t.applied {
		least = min(least, event.Micros(t.applied[i].Load()))
	}
	if least == 0 {
		least = t.born
	}
	return max(now()-least, 0).Duration()
}
