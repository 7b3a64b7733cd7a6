package blocklist

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/internal/failure"
	"github.com/tallygate/tallygate/verdict"
)

// Sink is a table that a Feed keeps in step with the blocklist. Calls for one shard come one at a time and in order;
// those for different shards may come at once. A verdict is named by its record key. A Sink that can lose verdicts by
// itself has also a method SnapshotsWanted() uint64: when it returns another number than before, the feed takes a new
// snapshot of each shard.
type Sink interface {
	// Replace sets the shard's contents to all. The sink may keep it, and
	// must not change it.
	Replace(shard int, all []verdict.Verdict)
	// Apply adds verdicts to the shard, in order; a clear ends the block under its record key. One
	// whose seq is below the stored one is older and changes nothing. The sink may keep them, and
	// must not change them.
	Apply(shard int, changes []verdict.Verdict)
	// Remove takes the verdict with this record key out of the shard, whatever its seq.
	Remove(shard int, recordKey []byte)
	// Heartbeat tells up to which moment the shard is in step. It is by the publishers' clocks, so
	// it may be in the future. math.MaxInt64 means that the shard needs no updates.
	Heartbeat(shard int, applied event.Micros)
}

// FeedConfig names the blocklist that a Feed follows.
type FeedConfig struct {
	// Redis is a client of the blocklist's servers; required. It must read from primaries only, and its ReadTimeout
	// must be longer than Block: a connection that is only half open is noticed after that. The caller closes it
	// after Run has returned.
	Redis redis.UniversalClient
	// Prefix begins the names of all keys in Redis; "" is tallygate.
	Prefix string
	// Shards is the number of the blocklist's shards; 0 is 1. The feed refuses a blocklist with another number: see
	// Refused. With AnyShards it asks the blocklist, once, and tells the sink by its method SetShards(int) error; an
	// enforce.Table has one.
	Shards int
	// Heartbeat is the publishers' interval between heartbeats; 0 is 1 s. When three are missing,
	// the feed checks whether it has lost its place.
	Heartbeat time.Duration
	// Block is the time for which Redis holds a read when there is no change; 0 is 1 s. Run ends within that time.
	Block time.Duration
	// Jitter is the longest wait of a feed that has lost its place before its new snapshot, so that
	// enforcers spread their snapshots; 0 is 1 s, negative is none. The table keeps enforcing
	// meanwhile.
	Jitter time.Duration
	// Logger; nil is slog.Default().
	Logger *slog.Logger
}

// AnyShards is the FeedConfig.Shards of a feed that follows a blocklist of any number of shards.
const AnyShards = -1

func (c *FeedConfig) setDefaults() {
	c.Prefix = cmp.Or(c.Prefix, "tallygate")
	c.Shards = cmp.Or(c.Shards, 1)
	c.Heartbeat = cmp.Or(c.Heartbeat, time.Second)
	c.Block = cmp.Or(c.Block, time.Second)
	c.Jitter = cmp.Or(c.Jitter, time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
}

func (c *FeedConfig) validate() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("blocklist: "+format, args...))
		}
	}
	wrong(c.Redis == nil, "Redis is required")
	wrong(c.Shards < 1 && c.Shards != AnyShards, "Shards is %d, want at least 1, or AnyShards", c.Shards)
	wrong(strings.ContainsAny(c.Prefix, "{}"), "Prefix is %q, want one without braces", c.Prefix)
	wrong(c.Heartbeat < 0, "Heartbeat is negative")
	wrong(c.Block < time.Millisecond, "Block is %v, want at least 1ms", c.Block)
	if c.Redis != nil {
		errs = append(errs, layout.PrimariesOnly(c.Redis))
		timeout := readTimeout(c.Redis)
		wrong(timeout > 0 && timeout <= c.Block, "Block is %v, want less than the Redis client's ReadTimeout of %v", c.Block, timeout)
	}
	return errors.Join(errs...)
}

func readTimeout(client redis.UniversalClient) time.Duration {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ReadTimeout
	case *redis.ClusterClient:
		return c.Options().ReadTimeout
	}
	return 0
}

// Feed keeps a Sink in step with the blocklist: a snapshot, then changes. Make it with NewFeed.
// Feeds of one process that have the same Redis client and settings read once for all of them. Each
// calls its own sink, so a slow sink does not delay the others. When too much waits for a sink
// (131,072 changes), the feed drops it, and gives the sink a snapshot once it returns. Run ends
// when the sink has returned.
type Feed struct {
	cfg    FeedConfig
	reader atomic.Pointer[reader] // the latest; nil before Run, and while it learns
	learns learning

	mu    sync.Mutex
	stats FeedStats
}

// FeedStats counts a Feed's work.
type FeedStats struct {
	Snapshots uint64 // complete ones
	Partial   uint64 // taken while the blocklist was being filled; they only add
	Lost      uint64 // times that the place in the stream was lost
	Changes   uint64 // verdicts and removals that came by the stream
	Failing   bool   // Redis is away for at least one shard
	LastError error  // nil when there was none
	LastErrAt time.Time
	Outage    Outage               // what is wrong now
	Errors    map[ErrorKind]uint64 // attempts that failed
	// Why Redis refuses the feed now, by its user, password, rights or certificate, or why the feed
	// refuses what is there (ErrShards); nil when it follows. Run retries all of them.
	Refused error
}

// NewFeed returns a Feed that does nothing until Run.
func NewFeed(cfg FeedConfig) (*Feed, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Feed{cfg: cfg, learns: learning{Outages: newOutages(&cfg)}}, nil
}

// Run keeps sink in step until ctx ends, and then returns nil. While Redis is away, or refuses the
// feed, it retries, and sink keeps what it has: passwords, rights and certificates are changed. The
// log says so once at first, when the reason changes, and at the end. It returns an error at once if
// sink was made for another number of shards: nothing would mend that.
func (f *Feed) Run(ctx context.Context, sink Sink) error {
	if asks, ok := sink.(interface{ FollowedBy(why func() error) }); ok {
		asks.FollowedBy(f.missing)
	}
	cfg := f.cfg
	if cfg.Shards == AnyShards {
		var err error
		if cfg.Shards, err = f.learns.shards(ctx, &cfg, sink); err != nil || ctx.Err() != nil {
			return err
		}
	}
	if err := fits(sink, cfg.Shards); err != nil {
		return err
	}
	r, m, leave := join(f, &cfg, sink)
	defer leave()
	f.reader.Store(r)
	ctx, cancel := context.WithCancel(ctx)
	var telling sync.WaitGroup
	defer telling.Wait() // no sink is called once Run has returned
	defer cancel()
	for _, b := range m.boxes {
		telling.Go(func() { b.run(ctx) })
	}
	select {
	case <-ctx.Done():
		return nil
	case r.lead <- struct{}{}:
		defer func() { <-r.lead }()
		r.run(ctx)
		return nil
	}
}

// Stats returns what the Feed has done so far.
func (f *Feed) Stats() FeedStats {
	f.mu.Lock()
	s := f.stats
	f.mu.Unlock()
	s.Failing, s.LastErrAt, s.LastError = f.learns.State()
	s.Outage, s.Errors = f.learns.Outage(), f.learns.Errors()
	if r := f.reader.Load(); r != nil {
		s.Outage = r.redis.Outage()
		failing, at, err := r.redis.State()
		if s.Failing = failing; err != nil {
			s.LastErrAt, s.LastError = at, err
		}
		s.Errors = sum(s.Errors, r.redis.Errors())
	}
	if s.Refused = f.Refused(); s.Refused == nil && s.Failing && failure.Of(s.LastError).Refuses() {
		s.Refused = s.LastError
	}
	return s
}

// sum adds one map's numbers to another's.
func sum(to, from map[ErrorKind]uint64) map[ErrorKind]uint64 {
	if len(to) == 0 {
		return from
	}
	for kind, n := range from {
		to[kind] += n
	}
	return to
}

// Refused returns why the feed does not follow the blocklist although Redis answers: ErrShards; nil
// if it does follow. Meanwhile a program should report that it is not ready: it misses some of the
// blocks.
func (f *Feed) Refused() error {
	r := f.reader.Load()
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for shard := range r.cfg.Shards {
		if err := r.refused[shard]; err != nil {
			return err
		}
	}
	return nil
}

// missing says why the sink has no snapshot yet; nil: it is under way.
func (f *Feed) missing() error {
	o, answered := &f.learns.Outages, f.learns.answered.Load()
	if r := f.reader.Load(); r != nil {
		if err := f.Refused(); err != nil {
			return err
		}
		o, answered = &r.redis, r.answered.Load()
	}
	failing, _, last := o.State()
	switch {
	case failing:
		return fmt.Errorf("blocklist: following it in Redis fails: %w", last)
	case errors.Is(last, failure.ErrNothing):
		return fmt.Errorf("blocklist: Redis has answered, and waits for an aggregator with this Redis and this prefix: %w", last)
	case !answered:
		return errors.New("blocklist: Redis has not answered yet")
	}
	return nil
}

// fits returns an error for a sink that has another number of shards: it would never be ready, or
// be told of some that it doesn't have.
func fits(sink Sink, shards int) error {
	if s, ok := sink.(interface{ Shards() int }); ok && s.Shards() != shards {
		return fmt.Errorf("blocklist: the feed has %d shards and its table %d: give both Configs the blocklist's number", shards, s.Shards())
	}
	return nil
}

func (f *Feed) count(change func(*FeedStats)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.stats)
}
