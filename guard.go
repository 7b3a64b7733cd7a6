package tallygate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// Guard is a service's part of an installation. Make it with Open, share it, and Close it at the end. Its
// methods may be called by many goroutines.
type Guard struct {
	name     string // Config.Name
	started  time.Time
	log      *slog.Logger
	table    *enforce.Table
	feed     *blocklist.Feed
	admitter enforce.RunningAdmitter // nil: none
	emitter  *emit.Emitter           // nil: none
	presence *presence.Announcer     // nil: none
	client   redis.UniversalClient   // nil: the caller's
	metrics  func()                  // takes them out again

	stop     context.CancelFunc
	running  sync.WaitGroup
	closed   sync.Once
	closeErr error

	noKafka sync.Once     // that events go nowhere was logged
	noDims  atomic.Uint64 // checks without a user
	mu      sync.Mutex
	gates   []*httplimit.Gate
}

// Open returns a Guard. It returns at once, and needs neither Redis nor Kafka yet: use WaitReady before
// the service takes requests. An error is about the Config, whose field it names.
//
// What it starts in the background works until Close, and not until ctx ends: a service that was told to
// stop still answers requests. It starts that itself, as emit.New does: a Guard without it would be empty,
// and allow everybody.
func Open(ctx context.Context, cfg Config) (*Guard, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("tallygate: open: %w", err)
	}
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	g := &Guard{name: cfg.Name, started: time.Now(), log: cfg.Logger, metrics: func() {}}
	if err := g.build(&cfg); err != nil {
		_ = g.release() // the first error tells more
		return nil, err
	}
	g.start(context.WithoutCancel(ctx))
	return g, nil
}

// build makes the parts. After an error release gives back what was made.
func (g *Guard) build(cfg *Config) (err error) {
	client, owned, err := cfg.client()
	if err != nil {
		return err
	}
	if owned {
		g.client = client
	}
	table, feed := cfg.Table, blocklist.FeedConfig{Redis: client, Prefix: cfg.Prefix, Shards: cfg.Shards, Logger: cfg.Logger}
	table.Shards, table.Logger = cfg.Shards, cfg.Logger
	if cfg.Shards == 0 {
		feed.Shards = blocklist.AnyShards
	}
	if g.table, err = enforce.NewTable(table); err != nil {
		return fmt.Errorf("tallygate: Config.Table: %w", err)
	}
	if g.feed, err = blocklist.NewFeed(feed); err != nil {
		return fmt.Errorf("tallygate: Config.Redis, RedisClient or Prefix: %w", err)
	}
	if cfg.Admit != nil {
		if g.admitter, err = cfg.Admit(client, cfg.Prefix, cfg.Logger); err != nil {
			return fmt.Errorf("tallygate: Config.Admit: %w", err)
		}
	}
	if len(cfg.Kafka) > 0 {
		events := cfg.Emitter
		events.Brokers, events.Prefix, events.Logger = cfg.Kafka, cfg.Prefix, cfg.Logger
		if g.emitter, err = emit.New(events); err != nil {
			return fmt.Errorf("tallygate: Config.Kafka or Emitter: %w", err)
		}
	}
	if !cfg.NoPresence {
		if g.presence, err = g.announcer(cfg, client); err != nil {
			return fmt.Errorf("tallygate: Config.Redis, RedisClient or Prefix: %w", err)
		}
	}
	return g.register(cfg.Metrics)
}

// announcer makes what tells operators that the Guard is there.
func (g *Guard) announcer(cfg *Config, client redis.UniversalClient) (*presence.Announcer, error) {
	describe := presence.Describe(g.table, g.feed)
	return presence.New(presence.Config{Redis: client, Prefix: cfg.Prefix, Logger: cfg.Logger, Beat: func() presence.Beat {
		b := describe()
		b.Name = cmp.Or(cfg.Name, b.Name)
		return b
	}})
}

func (g *Guard) register(to prometheus.Registerer) error {
	if to == nil {
		return nil
	}
	all := &collector{table: g.table, feed: g.feed, emitter: g.emitter, guard: g}
	if err := to.Register(all); err != nil {
		return fmt.Errorf("tallygate: Config.Metrics: is there another Guard on this Registerer? Wrap it with a label: %w", err)
	}
	g.metrics = func() { to.Unregister(all) }
	return nil
}

func (g *Guard) start(ctx context.Context) {
	ctx, g.stop = context.WithCancel(ctx)
	run := func(what string, run func(context.Context) error) {
		g.running.Go(func() {
			if err := run(ctx); err != nil {
				g.log.Error("a part of the guard has ended; it does what it can without", "part", what, "error", err)
			}
		})
	}
	run("table", g.table.Run)
	if g.presence != nil {
		run("presence", g.presence.Run)
	}
	run("feed", func(ctx context.Context) error { return g.feed.Run(ctx, g.table) })
	if g.admitter != nil {
		run("admitter", g.admitter.Run)
	}
}

// WaitReady waits until the blocklist was read for the first time, and with Config.Admit the rules. Before
// that the Guard knows nobody whom it would deny, and what asks for permits is in doubt. Give ctx a bound, such as 10 s, and decide what is worse: to serve without limits
// until Redis answers, or not to serve. The error says what is missing.
func (g *Guard) WaitReady(ctx context.Context) error {
	err := g.table.WaitReady(ctx)
	if g.admitter != nil {
		err = errors.Join(err, g.admitter.WaitReady(ctx))
	}
	return err
}

// Check reports whether the user may use the API now, from memory: see enforce.Table.Check. For users
// and addresses, and to ask for permits, use Middleware, or Table and Admitter.
func (g *Guard) Check(api enforce.API, uid string) enforce.Decision {
	if uid == "" {
		g.noDims.Add(1)
	}
	d := g.table.Check(api, uid)
	if d.Rule() != "" {
		g.table.CountDecision(d)
	}
	return d
}

// Middleware calls the next handler for each request that no verdict denies: see httplimit.Middleware. It
// asks for permits if Config.Admit is set, and emits an event for each request that it has let in if
// Config.Kafka is. Set Admit or Events of the options to others, or Events to NoEvents, to change that. It
// panics when the options are invalid.
func (g *Guard) Middleware(options httplimit.Options) func(http.Handler) http.Handler {
	if options.Admit == nil && g.admitter != nil {
		options.Admit = g.admitter
	}
	if options.Events == nil && g.emitter != nil {
		options.Events = g.emitter
	}
	if options.Events == NoEvents {
		options.Events = nil
	}
	if options.Logger == nil {
		options.Logger = g.log
	}
	gate, err := httplimit.NewGate(g.table, options)
	if err != nil {
		panic(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gates = append(g.gates, gate)
	return gate.Handler
}

// NoEvents are the Events of a Middleware whose handlers call Emit themselves, or whose requests count
// nowhere. An event of a request with a permit is to carry it: httplimit.PermitOf.
var NoEvents httplimit.Emitter = noEvents{}

type noEvents struct{}

// Emit emits nothing.
func (noEvents) Emit(event.Event) bool { return false }

// Emit queues an event for Kafka, and never blocks: see emit.Emitter.Emit. Use it for what is not a
// request of a Middleware, which emits by itself: the event would count twice. Without Config.Kafka it
// returns false.
func (g *Guard) Emit(e event.Event) bool {
	if g.emitter == nil {
		g.noKafka.Do(func() {
			g.log.Warn("events are emitted, and Config.Kafka has no brokers: they count nowhere; further ones are not logged")
		})
		return false
	}
	return g.emitter.Emit(e)
}

// Table is the Guard's table, for other checks, such as those of grpclimit.
func (g *Guard) Table() *enforce.Table { return g.table }

// Admitter asks for permits; nil without Config.Admit.
func (g *Guard) Admitter() enforce.Admitter {
	if g.admitter == nil {
		return nil
	}
	return g.admitter
}

// Stats holds the numbers of the Guard's parts.
type Stats struct {
	Feed   blocklist.FeedStats
	Events emit.Stats // zero without Config.Kafka
}

// Stats returns what the Guard's parts have done.
func (g *Guard) Stats() Stats {
	s := Stats{Feed: g.feed.Stats()}
	if g.emitter != nil {
		s.Events = g.emitter.Stats()
	}
	return s
}

// Close sends what is queued until ctx ends, gives permits back, and ends what Open started. Call it when
// the last request is answered: a permit that ends later stays in Redis until its hold is over, and the log
// says so. The error says how many events are lost. Further calls wait for the first
// one. It may take two seconds longer than ctx.
func (g *Guard) Close(ctx context.Context) error {
	g.closed.Do(func() {
		g.stop()
		if g.emitter != nil {
			g.closeErr = g.emitter.Close(ctx)
		}
		g.running.Wait()
		g.closeErr = errors.Join(g.closeErr, g.release())
	})
	return g.closeErr
}

// release gives back what build has made.
func (g *Guard) release() (err error) {
	g.metrics()
	if g.emitter != nil {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = g.emitter.Close(now) // the first call has told
	}
	if g.client != nil {
		err = g.client.Close()
	}
	return err
}
