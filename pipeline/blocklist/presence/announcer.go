package presence

import (
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/pipeline/internal/failure"
)

// Config describes an enforcer, and its Redis.
type Config struct {
	// Redis is a client of the blocklist's servers; required. The caller closes it after Run has returned.
	Redis redis.UniversalClient
	// Prefix begins the key; "" is tallygate.
	Prefix string
	// Beat returns what the enforcer says about itself now; required. ID and At are filled in. Run calls
	// it every Every, so it may take a few milliseconds.
	Beat func() Beat
	// Every is the interval between beats; 0 is the constant Every. Readers expect that one.
	Every time.Duration
	// Logger is told, once, when Redis refuses the beats, and when it takes them again; nil is
	// slog.Default().
	Logger *slog.Logger
}

// Announcer announces one enforcer. Make it with New, then call Run.
type Announcer struct {
	cfg Config
	id  string

	mu     sync.Mutex
	counts map[failure.Kind]uint64
	told   map[failure.Kind]bool // what the log says of this outage
}

// New returns an Announcer that does nothing until Run.
func New(cfg Config) (*Announcer, error) {
	var errs []error
	if cfg.Redis == nil {
		errs = append(errs, errors.New("presence: Redis is required"))
	}
	if cfg.Beat == nil {
		errs = append(errs, errors.New("presence: Beat is required"))
	}
	if cfg.Every < 0 {
		errs = append(errs, errors.New("presence: Every is negative"))
	}
	if err := errors.Join(append(errs, validPrefix(cfg.Prefix))...); err != nil {
		return nil, err
	}
	cfg.Every = cmp.Or(cfg.Every, Every)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return &Announcer{cfg: cfg, id: cryptorand.Text(), counts: map[failure.Kind]uint64{}, told: map[failure.Kind]bool{}}, nil
}

// ID is the enforcer's id: random, of this start.
func (a *Announcer) ID() string { return a.id }

// Errors returns how many beats were not written, by the reason.
func (a *Announcer) Errors() map[failure.Kind]uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.counts)
}

const (
	// stopWithin bounds the removal of the beat at the end of Run.
	stopWithin = time.Second
	// refusedEvery is the interval between attempts while Redis refuses the beats: each is a line in its ACL LOG.
	refusedEvery = time.Minute
	// cleanEvery is the interval at which one of all enforcers removes forgotten beats.
	cleanEvery = time.Minute
)

// Run beats until ctx ends, and then removes the enforcer's beat. It always returns nil: what Redis refuses
// is counted and logged. A Redis that hangs delays its return by at most a second.
func (a *Announcer) Run(ctx context.Context) error {
	pause := retry.Backoff{Min: a.cfg.Every, Max: max(refusedEvery, a.cfg.Every)}
	cleaning := time.Now().Add(retry.Spread(cleanEvery))
	left := 1
	var busy <-chan struct{} // closed when the attempt under way has ended
	for ctx.Err() == nil {
		var err error
		done := make(chan struct{})
		busy = done
		// In a goroutine of its own: the client answers no sooner when ctx ends.
		go func() {
			defer close(done)
			if err = a.beat(ctx); err == nil && time.Now().After(cleaning) {
				left, err = clean(ctx, a.cfg.Redis, a.cfg.Prefix)
				cleaning = time.Now().Add(retry.Spread(time.Duration(2*max(left, 1)) * cleanEvery))
			}
			if ctx.Err() == nil {
				a.note(err)
			}
		}()
		select {
		case <-ctx.Done():
		case <-done:
			wait := a.cfg.Every - rand.N(a.cfg.Every/8+1) // services that were started together do not beat together
			if redis.IsPermissionError(err) {
				wait = pause.Next()
			} else {
				pause.Reset()
			}
			retry.Sleep(ctx, wait)
		}
	}
	a.leave(ctx, busy)
	return nil
}

func (a *Announcer) beat(ctx context.Context) error {
	b := a.cfg.Beat()
	b.ID, b.At = a.id, time.Now().UTC()
	return Write(ctx, a.cfg.Redis, a.cfg.Prefix, b)
}

// leave removes the beat, after the attempt that is under way: it would come back.
func (a *Announcer) leave(ctx context.Context, busy <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if busy == nil {
		return // it never began
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-busy:
			_ = Remove(ctx, a.cfg.Redis, a.cfg.Prefix, a.id) // else it is gone after GoneAfter
		case <-ctx.Done():
		}
	}()
	select {
	case <-gone:
	case <-ctx.Done():
	}
}

// note counts an error, and logs the first of a kind in an outage. Who follows the blocklist tells of a Redis
// that is away, or lets nobody in.
func (a *Announcer) note(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		if len(a.told) > 0 {
			a.cfg.Logger.Info("this enforcer is announced in Redis again")
			clear(a.told)
		}
		return
	}
	kind := failure.Of(err)
	a.counts[kind]++
	if kind == failure.Away || kind == failure.TLS || a.told[kind] {
		return
	}
	a.told[kind] = true
	log := a.cfg.Logger
	if redis.IsPermissionError(err) {
		log = log.With("advice", "give its Redis user the rights on this key that `tallygate doctor --acls` prints, or turn the announcement off")
	}
	log.Warn("this enforcer is not announced in Redis, so operators do not see it; it enforces as before", "error", err)
}

// HostName names an enforcer without a name: host:pid, or the host's name alone for the first process of a container.
func HostName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	if pid := os.Getpid(); pid != 1 {
		host += ":" + strconv.Itoa(pid)
	}
	return host
}
