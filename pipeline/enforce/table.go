package enforce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/pipeline/enforce/internal/index"
	"github.com/tallygate/tallygate/pipeline/event"
)

// Config says how a Table keeps time and house. Its zero value is good.
type Config struct {
	// Shards is how many shards the blocklist has; 0 is 1. The table is ready when it has had a
	// snapshot of each.
	Shards int
	// Resolution is how often Run moves the coarse clock that checks go by; 0 is 20 ms. Within a second of a verdict's
	// beginning or end they ask the system's, so it is enforced from since until until, to the microsecond, unless Run
	// doesn't get to run for longer than that second.
	Resolution time.Duration
	// Sweep is how often Run frees the memory of verdicts that have run out; 0 is 30 s.
	Sweep time.Duration
	// Grace is how long after its end a verdict is kept, so that a clock that is ahead for a moment loses none: they are in force
	// again when it is set right. 0 is 10 min.
	Grace time.Duration
	// Causes keeps, of each verdict, the event that let it fall, for Verdicts and List: about 8 bytes an entry, and the
	// event's id. Checks don't need it.
	Causes bool

	// InDoubt is what checks answer before the first snapshot, while the table is further behind than MaxStaleness, and from ten
	// seconds after NewTable as long as nobody has called Run, which is what notices that; the zero value is LastKnown.
	InDoubt InDoubt
	// MaxStaleness is how far the table may be behind without being in doubt; 0 is 1 minute.
	MaxStaleness time.Duration
	// Rules is what holds for single rules instead, by their names.
	Rules map[string]RuleInDoubt
	// Instances is how many processes share the load, and so a local limit; 0 is 1.
	Instances int
	// OffFile is a file that turns all enforcement off while it exists; "" is none. Run looks once a second.
	OffFile string
	// Logger is told when enforcement is turned off and on again, and, once, that nobody called Run; nil is slog.Default().
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
	return errors.Join(append(errs, c.validateDoubt())...)
}

// Table is the verdicts in force, in memory. Make it with NewTable. All its methods may be called by many
// goroutines; checks take no lock, allocate nothing and never wait for a change.
//
// A user who is blocked by one rule takes about 27 bytes and the key's length.
type Table struct {
	index index.Index
	clock atomic.Int64  // the coarse clock; 0 while Run isn't running
	mode  atomic.Uint32 // what is unusual; 0: nothing
	cfg   Config
	born  event.Micros

	started   time.Time // with the monotonic clock
	steps     steps
	ran, told atomic.Bool // Run was called; that it wasn't was said

	doubts         doubts
	offByVariable  bool
	off, offByFile atomic.Bool
	watching       sync.Mutex
	doubtful       atomic.Int64 // since when the table is in doubt; 0: it isn't. Changed under watching
	doubtTime      event.Micros // spent in doubt before that; under watching
	toldOff        bool         // the log has been told that enforcement is off; under watching

	ready   atomic.Int32
	had     []atomic.Bool  // which shards had a snapshot
	applied []atomic.Int64 // up to when each shard is in step
}

// NewTable returns an empty table. It works at once, but what has run out is forgotten only by Run; without that it is in doubt after
// ten seconds.
func NewTable(cfg Config) (*Table, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	t := &Table{cfg: cfg, born: now(), started: time.Now(), had: make([]atomic.Bool, cfg.Shards), applied: make([]atomic.Int64, cfg.Shards)}
	t.steps.wall = event.FromTime(t.started)
	t.index.Init(cfg.Causes)
	t.doubts = newDoubts(&cfg)
	t.offByVariable = offByVariable()
	t.lookForFile()
	t.watch()
	return t, nil
}

func now() event.Micros { return event.FromTime(time.Now()) }

// Run keeps the table's clock and frees what has run out, until ctx ends; it then returns nil. Without it
// checks read the system's clock, which costs more than all the rest, and the table is in doubt; the log says so.
func (t *Table) Run(ctx context.Context) error {
	tick := time.NewTicker(t.cfg.Resolution)
	defer tick.Stop()
	sweep := time.NewTicker(t.cfg.Sweep)
	defer sweep.Stop()
	file := time.NewTicker(fileEvery)
	defer file.Stop()
	t.clock.Store(int64(t.look()))
	defer t.clock.Store(0)
	t.ran.Store(true)
	t.watch()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			t.clock.Store(int64(t.look()))
			t.watch()
		case <-file.C:
			t.lookForFile()
		case <-sweep.C:
			t.sweep(t.look())
		}
	}
}

// Now returns the time that checks go by: at most the Config's Resolution behind the system's clock.
func (t *Table) Now() event.Micros {
	if c := t.clock.Load(); c != 0 {
		return event.Micros(c)
	}
	return t.unattended()
}

// coarse returns the time that checks go by, and how near to it they ask the system's clock.
func (t *Table) coarse() (at, near event.Micros) {
	if c := t.clock.Load(); c != 0 {
		return event.Micros(c), nearly
	}
	return t.unattended(), 0
}

// Len returns how many verdicts the table holds, those that have run out and are not swept yet included.
func (t *Table) Len() int { return t.index.Len() }

// Bytes returns how much memory the verdicts take.
func (t *Table) Bytes() int { return t.index.Bytes() }

// Full reports whether the latest verdict found no room: a table holds up to 8 GiB, which are more than a hundred million.
func (t *Table) Full() bool { return t.index.Full() }

// Shards returns how many shards it was made for.
func (t *Table) Shards() int { return t.cfg.Shards }

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
