package admit

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
)

// OnDoubt selects the answer while nobody can say whether a strict limit is reached.
type OnDoubt uint8

// The answers.
const (
	Closed OnDoubt = iota // they are denied; the zero value
	Open                  // they are let in: the limit may be exceeded
	Local                 // this process lets in its share of the limit: Config.Enforcers
)

var onDoubtNames = [...]string{Closed: "closed", Open: "open", Local: "local"}

func (o OnDoubt) String() string { return onDoubtNames[min(int(o), len(onDoubtNames)-1)] }

// MarshalText is String.
func (o OnDoubt) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText is its inverse.
func (o *OnDoubt) UnmarshalText(text []byte) error {
	i := slices.Index(onDoubtNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("%.40q: want closed, open or local", text)
	}
	*o = OnDoubt(i)
	return nil
}

// Emitter sends events. Emit must not block. An emit.Emitter is one.
type Emitter interface {
	Emit(e event.Event) bool
}

// Config configures an Admitter. One of Redis and Rules is required.
type Config struct {
	// Redis holds permits and rules: a client for a server, Sentinel or Cluster. Reads go to primaries only.
	Redis redis.UniversalClient
	// Prefix begins the names of all keys in Redis; "" is tallygate.
	Prefix string
	// Rules are rules that never change, for an Admitter without Redis: none of them may be strict.
	Rules *rules.Set
	// Poll is the interval between looks for other rules; 0 is 3 s. A request that was judged by rules that are no
	// longer in force fetches the others at once.
	Poll time.Duration

	// OnDoubt is for all strict rules, but those in OnDoubtOf, by name; the zero value is Closed.
	OnDoubt   OnDoubt
	OnDoubtOf map[string]OnDoubt
	// Enforcers is the number of processes that share the load, and a limit with Local; 0 is 1.
	Enforcers int

	// MaxDelay bounds a request's wait for its turn under a rule whose action is throttle; 0 is 1 s, and a negative
	// value never waits. MaxDelayedPerKey is how many may wait for one key and limit; 0 is 100.
	MaxDelay         time.Duration
	MaxDelayedPerKey int

	// Events, if set, gets an event for each permit that Done ends, with the outcome that Done is
	// given. Leave it nil where the action emits its own event, or a middleware does.
	Events Emitter
	// Logger; nil is slog.Default().
	Logger *slog.Logger
}

func (c *Config) setDefaults() {
	c.Prefix = cmp.Or(c.Prefix, "tallygate")
	c.Poll = cmp.Or(c.Poll, 3*time.Second)
	c.Enforcers = cmp.Or(c.Enforcers, 1)
	c.MaxDelay = cmp.Or(c.MaxDelay, time.Second)
	c.MaxDelayedPerKey = cmp.Or(c.MaxDelayedPerKey, 100)
	c.Logger = cmp.Or(c.Logger, slog.Default())
}

func (c *Config) validate() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("admit: "+format, args...))
		}
	}
	wrong((c.Redis == nil) == (c.Rules == nil), "give either Redis or Rules")
	wrong(c.Rules != nil && len(c.Rules.Strict()) > 0, "Rules has strict rules, which need Redis: give Redis instead; an aggregator puts the rules there")
	wrong(strings.ContainsAny(c.Prefix, "{}"), "Prefix is %q, want one without braces", c.Prefix)
	wrong(c.Poll < 0, "Poll is %v, want none negative", c.Poll)
	wrong(c.Enforcers < 1, "Enforcers is %d, want at least 1", c.Enforcers)
	wrong(c.MaxDelayedPerKey < 0, "MaxDelayedPerKey is %d, want none negative", c.MaxDelayedPerKey)
	wrong(c.OnDoubt > Local, "OnDoubt is %d, want Closed, Open or Local", c.OnDoubt)
	for name, on := range c.OnDoubtOf {
		wrong(on > Local, "OnDoubtOf[%q] is %d, want Closed, Open or Local", name, on)
	}
	return errors.Join(errs...)
}

func (c *Config) onDoubt(rule string) OnDoubt {
	if on, ok := c.OnDoubtOf[rule]; ok {
		return on
	}
	return c.OnDoubt
}
