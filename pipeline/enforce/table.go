package enforce

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/index"
	"github.com/tallygate/tallygate/verdict"
)

// Config configures a Table's clock and housekeeping, and what it answers while it is stale. The
// zero value is ready to use.
type Config struct {
	// Shards is the blocklist's number of shards; 0 is 1, or what a feed learns. The table is ready
	// after a snapshot of each.
	Shards int
	// Resolution is the interval at which Run updates the coarse clock of checks; 0 is 20 ms. Within a second of a
	// verdict's beginning or end, checks use the system's clock: verdicts are enforced to the microsecond, unless Run
	// is held up for more than that second.
	Resolution time.Duration
	// Sweep is the interval at which Run frees the memory of ended verdicts; 0 is 30 s.
	Sweep time.Duration
	// Grace is the time for which a verdict is kept after its end; 0 is 10 min. A clock that is ahead for a while
	// then loses none: they are in force again when it is corrected.
	Grace time.Duration
	// Causes keeps the event that triggered each verdict, for Verdicts and List. It takes about 8
	// bytes an entry, and the event's id. Checks don't need it.
	Causes bool

	// OnStale selects the answer of checks while the table is stale; the zero value is LastKnown. It is stale before
	// the first snapshot and while it is further behind than MaxStaleness. Run is what notices that: ten seconds
	// after NewTable the table is also stale until Run is called.
	OnStale OnStale
	// MaxStaleness is the greatest delay behind the blocklist of a table that is not stale; 0 is 1 minute.
	MaxStaleness time.Duration
	// Rules replaces OnStale for single rules, by name.
	Rules map[string]RuleOnStale
	// Instances is the number of processes that share the load, and thus each local limit; 0 is 1.
	Instances int
	// OffFile is a file that turns all enforcement off while it exists; "" is none. Run looks for
	// it once a second.
	OffFile string
	// Traced is told of each block that came into force here, as Latency has them, whose event is traced:
	// the verdict has the context (verdict.Verdict.Trace). It is called by whoever calls Apply, with a lock
	// held: it must not block, must not call the table, and must not keep the verdict. nil is told nothing.
	Traced func(v *verdict.Verdict, at event.Micros)
	// Logger logs when enforcement is turned off and on, and, once, that Run was not called; nil is
	// slog.Default().
	Logger *slog.Logger
	// Now, if set, is the time of all checks in place of the system's clock, for tests: see package
	// tallygatetest. Such a table needs no Run, which does nothing then. It is called by many goroutines.
	Now func() event.Micros
}

func (c *Config) setDefaults() {
	c.Shards = cmp.Or(c.Shards, 1)
	c.Resolution = cmp.Or(c.Resolution, 20*time.Millisecond)
	c.Sweep = cmp.Or(c.Sweep, 30*time.Second)
	c.Grace = cmp.Or(c.Grace, 10*time.Minute)
	c.MaxStaleness = cmp.Or(c.MaxStaleness, time.Minute)
	c.Instances = cmp.Or(c.Instances, 1)
	c.Logger = cmp.Or(c.Logger, slog.Default())
}

// now is the time to the microsecond.
func (c *Config) now() event.Micros {
	if c.Now != nil {
		return c.Now()
	}
	return now()
}

func (c *Config) validate() error {
	var errs []error
	if c.Shards < 1 {
		errs = append(errs, fmt.Errorf("enforce: Shards is %d, want at least 1", c.Shards))
	}
	if c.Resolution < 0 || c.Sweep < 0 || c.Grace < 0 {
		errs = append(errs, fmt.Errorf("enforce: Resolution is %v, Sweep %v and Grace %v, want none negative", c.Resolution, c.Sweep, c.Grace))
	}
	if c.MaxStaleness < 0 {
		errs = append(errs, fmt.Errorf("enforce: MaxStaleness is %v, want none negative", c.MaxStaleness))
	}
	if c.Instances < 1 {
		errs = append(errs, fmt.Errorf("enforce: Instances is %d, want at least 1", c.Instances))
	}
	return errors.Join(append(errs, errorsOnStale(c.OnStale, c.Rules))...)
}

// Table holds the verdicts in force in memory. Make it with NewTable. Its methods may be called by
// many goroutines. Checks take no lock, allocate nothing and never wait for a change.
//
// A user who is blocked by one rule takes about 27 bytes and the key's length. So does what a key has
// left under a limit with `quota`.
type Table struct {
	// What the fast path of a check reads is together, in one cache line: mode begins with its bits.
	index index.Index
	clock clock
	mode  mode

	cfg    Config
	policy stalePolicy
	steps  steps
	lines  lines
	latencies

	quotas // apart, so that checks pay nothing for them
	readiness
	reports
}

// NewTable returns an empty table. It can be used at once. Only Run frees ended verdicts: call it
// within ten seconds, or the table is stale.
func NewTable(cfg Config) (*Table, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	t := &Table{cfg: cfg, policy: newStalePolicy(cfg.OnStale, cfg.Rules, cfg.Instances)}
	t.index.Init(cfg.Causes)
	t.latencies.told = cfg.Traced
	t.quotas.init(t)
	t.reports.table = t
	t.mode.init(&t.cfg, t.policy.matters())
	t.readiness.progress = &t.mode.progress
	t.clock.system = func() event.Micros {
		t.mode.checkRan()
		return now()
	}
	if cfg.Now != nil {
		t.clock.system = cfg.Now
		t.mode.ran.Store(true)
	}
	t.steps.init(t.mode.started)
	return t, nil
}

// Len returns how many verdicts the table holds, including ended ones that are not swept yet.
func (t *Table) Len() int { return t.index.Len() }

// Bytes returns how much memory the verdicts take.
func (t *Table) Bytes() int { return t.index.Bytes() }

// Full reports whether the latest verdict found no room. A table holds up to 8 GiB, which is more
// than a hundred million verdicts.
func (t *Table) Full() bool { return t.index.Full() }

// Shards returns the number of shards: that of its Config, or the one that a feed has learned.
func (t *Table) Shards() int { return t.mode.progress.count() }

// Now returns the time that checks use: at most Config.Resolution behind the system's clock.
func (t *Table) Now() event.Micros { return t.clock.now() }

// Ready reports whether the table has had a complete snapshot of every shard.
func (t *Table) Ready() bool { return t.mode.progress.complete() }

// Staleness returns how far the table is behind the blocklist: the time since all shards were last
// known to be in step, or since NewTable if a shard never was.
func (t *Table) Staleness() time.Duration { return t.mode.progress.behind() }

// Stale reports whether the table is stale. Config.OnStale and Config.Rules say how checks are
// answered meanwhile.
func (t *Table) Stale() bool {
	t.mode.checkRan()
	return t.mode.staleSince.Load() != 0
}

// StaleTime returns for how long altogether the table has been stale since NewTable.
func (t *Table) StaleTime() time.Duration { return t.mode.spentStale() }

// SetEnabled turns enforcement off or on. While it is off every check is allowed, and the table
// stays in step. Enforcement is on when none of three switches is off: this one, the environment
// variable TALLYGATE_ENFORCE=off, which NewTable reads, and Config.OffFile.
func (t *Table) SetEnabled(on bool) {
	t.mode.switches.call.Store(!on)
	t.mode.update()
}

// Enabled reports whether verdicts are enforced: none of the switches is off.
func (t *Table) Enabled() bool { return t.mode.bits.Load()&modeOff == 0 }

// SnapshotsWanted grows when the table needs a snapshot of each shard although it lost no change:
// the wall clock made a step, and verdicts that a wrong clock ended may be in force. A feed takes a
// snapshot each time the number changes.
func (t *Table) SnapshotsWanted() uint64 { return t.steps.count.Load() }
