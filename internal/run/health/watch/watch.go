package watch

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

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/internal/run/health/ask"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// Config configures a Watch.
type Config struct {
	Kafka  *kafkaconn.Kafka
	Redis  redis.UniversalClient // nil: there is none
	API    *api.Client           // of the aggregators, with the console's own token
	Prefix string                // of topics, group and Redis keys; "" is tallygate
	Shards int                   // of the blocklist; 0 is 1
	Every  time.Duration         // between two rounds; 0 is a second

	Enforcers http.RoundTripper // asks enforcers; nil trusts the system's authorities
	Logger    *slog.Logger      // told of what cannot be read, such as a token that is refused; nil: nobody is
}

// State is the knowledge of a moment. It is never changed once published.
type State struct {
	At       time.Time
	Readings health.Observations
	Chain    health.Chain
	Numbers  Numbers
	Points   []Point // of the latest 15 minutes, one a second, the oldest first
}

// Watch polls. Make one with New.
type Watch struct {
	cfg       Config
	state     atomic.Pointer[State]
	topicSize atomic.Int32 // partitions of the verdict topic, once known

	mu      sync.Mutex
	changed chan struct{}
}

// New makes a Watch. It asks nothing yet.
func New(cfg Config) *Watch {
	cfg.Prefix, cfg.Shards, cfg.Every = cmp.Or(cfg.Prefix, "tallygate"), cmp.Or(cfg.Shards, 1), cmp.Or(cfg.Every, time.Second)
	return &Watch{cfg: cfg, changed: make(chan struct{})}
}

// Still is a Watch that always is as given, for tests of pages.
func Still(s *State) *Watch {
	w := New(Config{})
	w.Show(s)
	return w
}

// Show lets a Still Watch be otherwise.
func (w *Watch) Show(s *State) { w.publish(s) }

// State is the latest; nil before the first round.
func (w *Watch) State() *State { return w.state.Load() }

// Changed is closed when there is another State than at the call.
func (w *Watch) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// How long attempts may take. Each is less than what a reading may be old.
const (
	kafkaWithin   = 2 * time.Second
	clusterWithin = 3 * time.Second
	redisWithin   = 1500 * time.Millisecond

	enforcedEvery   = 5 * time.Second
	exemptionsEvery = 30 * time.Second
	mostEnforcers   = 20 // decision servers that are asked for their histograms
)

// update enters what a poll learned, and reports whether a server began or ceased to answer: that is published
// at once.
type update func(*health.Observations) (turned bool)

// Run polls until ctx ends. A Watch without Kafka, such as a Still one, does nothing.
func (w *Watch) Run(ctx context.Context) error {
	if w.cfg.Kafka == nil {
		<-ctx.Done()
		return nil
	}
	learned := make(chan update)
	var polls sync.WaitGroup
	defer polls.Wait()
	w.start(ctx, &polls, learned)
	now := time.Now()
	r := health.Observations{Began: now, Now: now, NoRedis: w.cfg.Redis == nil}
	var memory health.Memory
	var past history
	tick := time.NewTicker(w.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case enter := <-learned:
			if !enter(&r) {
				continue
			}
		case <-tick.C:
			r.Now = time.Now()
			past.add(&r)
		case <-ctx.Done():
			return nil
		}
		r.Now = time.Now()
		var chain health.Chain
		chain, memory = health.Judge(memory, &r)
		w.publish(&State{At: r.Now, Readings: r, Chain: chain, Numbers: past.numbers(&r), Points: past.points})
	}
}

func (w *Watch) publish(s *State) {
	w.state.Store(s)
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.changed)
	w.changed = make(chan struct{})
}

// start begins the polls. None waits for another.
func (w *Watch) start(ctx context.Context, polls *sync.WaitGroup, learned chan<- update) {
	brokers := newKafkaPoll(w.cfg.Kafka, w.cfg.Prefix)
	readKafka := told(w.cfg.Logger, "Kafka", brokers.read)
	polls.Go(func() {
		defer brokers.close()
		poll(ctx, learned, w.cfg.Every, kafkaWithin, func(r *health.Observations) *health.Reading[health.Kafka] { return &r.Kafka },
			func(ctx context.Context) (health.Kafka, error) {
				is, err := readKafka(ctx)
				if err == nil {
					w.topicSize.Store(int32(is.Verdicts.Partitions)) //nolint:gosec // of a topic
				}
				return is, err
			})
	})
	aggregators := &clusterPoll{apis: w.cfg.API.Each()}
	polls.Go(func() {
		poll(ctx, learned, w.cfg.Every, clusterWithin, func(r *health.Observations) *health.Reading[health.Cluster] { return &r.Cluster },
			told(w.cfg.Logger, "the aggregators", aggregators.read))
	})
	polls.Go(func() {
		poll(ctx, learned, exemptionsEvery, clusterWithin, func(r *health.Observations) *health.Reading[health.Exemptions] { return &r.Exemptions },
			func(ctx context.Context) (health.Exemptions, error) { return aggregators.exemptions(ctx, time.Now()) })
	})
	if w.cfg.Redis != nil {
		w.startRedis(ctx, polls, learned)
	}
}

// startRedis begins the polls of what is in Redis.
func (w *Watch) startRedis(ctx context.Context, polls *sync.WaitGroup, learned chan<- update) {
	polls.Go(func() {
		poll(ctx, learned, w.cfg.Every, redisWithin, func(r *health.Observations) *health.Reading[health.Redis] { return &r.Redis },
			told(w.cfg.Logger, "Redis", w.readRedis))
	})
	polls.Go(func() {
		poll(ctx, learned, w.cfg.Every, redisWithin, func(r *health.Observations) *health.Reading[[]presence.Beat] { return &r.Enforcers },
			func(ctx context.Context) ([]presence.Beat, error) {
				return presence.List(ctx, w.cfg.Redis, w.cfg.Prefix)
			})
	})
	polls.Go(func() {
		over := w.cfg.Enforcers
		if over == nil {
			over = &http.Transport{MaxIdleConnsPerHost: 1}
		}
		enforcers := apiclient.NewEnforcers(over)
		defer enforcers.CloseIdleConnections()
		poll(ctx, learned, enforcedEvery, clusterWithin,
			func(r *health.Observations) *health.Reading[health.Enforced] { return &r.Enforced }, func(ctx context.Context) (health.Enforced, error) {
				s := w.State()
				if s == nil {
					return health.Enforced{}, errors.New("no enforcer is known yet")
				}
				return enforced(ctx, enforcers, s.Readings.Enforcers.Value), nil
			})
	})
}

func (w *Watch) readRedis(ctx context.Context) (health.Redis, error) {
	is, err := ask.Blocklist(ctx, w.cfg.Redis, w.cfg.Prefix, w.cfg.Shards, int(w.topicSize.Load()))
	if err == nil {
		is.Servers, err = ask.Servers(ctx, w.cfg.Redis)
	}
	return is, err
}

// told logs when something cannot be read any more, and when it can be again: pages say it only to who looks.
func told[T any](log *slog.Logger, what string, read func(context.Context) (T, error)) func(context.Context) (T, error) {
	if log == nil {
		return read
	}
	failing := false
	return func(ctx context.Context) (T, error) {
		v, err := read(ctx)
		switch {
		case errors.Is(err, context.Canceled): // the console ends
		case err != nil && !failing:
			failing = true
			log.Warn("the console cannot read what it shows; retrying", "error", fmt.Errorf("read %s: %w", what, err))
		case err == nil && failing:
			failing = false
			log.Info("the console can read again what it shows", "reason", what+" can be read")
		}
		return v, err
	}
}

// poll asks again and again: a round begins every so often, or when the one before has ended.
func poll[T any](ctx context.Context, learned chan<- update, every, within time.Duration, of func(*health.Observations) *health.Reading[T],
	read func(context.Context) (T, error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		asking, cancel := context.WithTimeout(ctx, within)
		v, err := read(asking)
		cancel()
		at := time.Now()
		select {
		case learned <- func(r *health.Observations) bool {
			is := of(r)
			turned := (err == nil) != (is.Err == nil && !is.At.IsZero())
			is.Took(v, err, at)
			return turned
		}:
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
