package enforce

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/pipeline/enforce/internal/index"
	"github.com/tallygate/tallygate/pipeline/event"
)

// Config configures a Table's clock and housekeeping, and what it answers while it is stale. The
// zero value is ready to use.
type Config struct {
	// Shards is the blocklist's number of shards; 0 is 1. The table is ready after a snapshot of
	// each.
	Shards int
	// Resolution is how often Run updates the coarse clock that checks use; 0 is 20 ms. Within a
	// second of a verdict's beginning or end, checks use the system's clock: verdicts are enforced
	// to the microsecond, unless Run is held up for more than that second.
	Resolution time.Duration
	// Sweep is how often Run frees the memory of ended verdicts; 0 is 30 s.
	Sweep time.Duration
	// Grace is how long a verdict is kept after its end; 0 is 10 min. A clock that is ahead for a
	// while then loses none: they are in force again when it is corrected.
	Grace time.Duration
	// Causes keeps the event that triggered each verdict, for Verdicts and List. It takes about 8
	// bytes an entry, and the event's id. Checks don't need it.
	Causes bool

	// OnStale is how checks are answered while the table is stale; the zero value is LastKnown. It
	// is stale before the first snapshot and while it is further behind than MaxStaleness. Run is
	// what notices that: ten seconds after NewTable the table is also stale until Run is called.
	OnStale OnStale
	// MaxStaleness is how far the table may be behind without being stale; 0 is 1 minute.
	MaxStaleness time.Duration
	// Rules replaces OnStale for single rules, by name.
	Rules map[string]RuleOnStale
	// Instances is how many processes share the load, and thus each local limit; 0 is 1.
	Instances int
	// OffFile is a file that turns all enforcement off while it exists; "" is none. Run looks for
	// it once a second.
	OffFile string
	// Logger logs when enforcement is turned off and on, and, once, that Run was not called; nil is
	// slog.Default().
	Logger *slog.Logger
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
// A user who is blocked by one rule takes about 27 bytes and the key's length.
type Table struct {
	index index.Index
	clock atomic.Int64  // the coarse clock; 0 while Run isn't running
	mode  atomic.Uint32 // modeOff, modeStale; 0 is the fast path of checks
	cfg   Config
	born  event.Micros

	started           time.Time // with the monotonic clock
	steps             steps
	ran, loggedNotRun atomic.Bool // Run was called; the log says that it wasn't

	policy         stalePolicy
	offByVariable  bool
	off, offByFile atomic.Bool
	modeMu         sync.Mutex   // held while the mode is found out
	staleSince     atomic.Int64 // since when the table is stale; 0: it isn't. Changed under modeMu
	staleTime      event.Micros // spent stale before that; under modeMu
	loggedOff      bool         // the log says that enforcement is off; under modeMu

	ready   atomic.Int32
	had     []atomic.Bool  // which shards had a snapshot
	applied []atomic.Int64 // up to when each shard is in step
}

// Len returns how many verdicts the table holds, including ended ones that are not swept yet.
func (t *Table) Len() int { return t.index.Len() }

// Bytes returns how much memory the verdicts take.
func (t *Table) Bytes() int { return t.index.Bytes() }

// Full reports whether the latest verdict found no room. A table holds up to 8 GiB, which is more
// than a hundred million verdicts.
func (t *Table) Full() bool { return t.index.Full() }

// Shards returns the number of shards in its Config.
func (t *Table) Shards() int { return t.cfg.Shards }

// Ready reports whether the table has had a complete snapshot of every shard.
func (t *Table) Ready() bool { return int(t.ready.Load()) == t.cfg.Shards }

// Staleness returns how far the table is behind the blocklist: the time since all shards were last
// known to be in step, or since NewTable if a shard never was.
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

// SnapshotsWanted grows when the table needs a snapshot of each shard although it lost no change:
// the wall clock made a step, and verdicts that a wrong clock ended may be in force. A feed takes a
// snapshot each time the number changes.
func (t *Table) SnapshotsWanted() uint64 { return t.steps.count.Load() }
