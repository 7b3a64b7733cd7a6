package enforce

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tallygate/tallygate/event"
)

const dimUID = "uid"

// OnStale selects the answer of checks while the table is stale: before the first snapshot, while it is further
// behind than Config.MaxStaleness, and when Run was not called.
type OnStale uint8

const (
	// LastKnown enforces the verdicts that the table has, each until its end.
	LastKnown OnStale = iota
	// Open fails open: it allows.
	Open
	// Closed fails closed: it denies. Decision.Unavailable reports it.
	Closed
	// Local is LastKnown, and a limiter in this process counts checks meanwhile: see RuleOnStale.
	Local
)

// RuleOnStale replaces Config.OnStale for one rule. The aggregator's rules don't reach
// applications, so Closed and Local need to know here what the rule is about.
type RuleOnStale struct {
	// Do selects the answer. Open ignores the rule's verdicts. Closed denies the APIs.
	Do OnStale
	// APIs are names and patterns, as in the rule's match; Closed and Local require them. With
	// Config.OnStale Closed, an API that some rule names here is closed only if such a rule is.
	APIs []string
	// Key are the rule's dimensions, for Local, such as ip/24 or api; nil is uid.
	Key []string
	// Limit and Per are the rule's; Local requires them. This process allows Limit ÷
	// Config.Instances, at least 1, at once, and as many per Per, evenly. It counts checks, and
	// knows nothing else that the rule looks at.
	Limit int
	Per   time.Duration
}

// errorsOnStale returns what is wrong with the options that are about a stale table.
func errorsOnStale(always OnStale, rules map[string]RuleOnStale) error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("enforce: "+format, args...))
		}
	}
	wrong(always > Local, "OnStale is %d, want LastKnown, Open, Closed or Local", always)
	locals := 0
	for name, r := range rules {
		wrong(r.Do > Local, "Rules[%q].Do is %d, want LastKnown, Open, Closed or Local", name, r.Do)
		wrong((r.Do == Closed || r.Do == Local) && len(r.APIs) == 0, "Rules[%q].APIs is empty: what is closed or limited?", name)
		if r.Do == Local {
			locals++
			wrong(r.Limit < 1 || r.Per < time.Microsecond, "Rules[%q] has Limit %d and Per %v, want both positive", name, r.Limit, r.Per)
			for _, dim := range r.Key {
				wrong(!event.IsDim(dim), "Rules[%q].Key has %q: dimensions are %s", name, dim, event.Dimensions)
			}
		}
	}
	wrong(always == Local && locals == 0, "OnStale is Local, and no rule in Rules has a local limit")
	return errors.Join(errs...)
}

var onStaleNames = [...]string{LastKnown: "last-known", Open: "open", Closed: "closed", Local: "local"}

// String returns the name in configurations: last-known, open, closed or local.
func (o OnStale) String() string {
	if int(o) < len(onStaleNames) {
		return onStaleNames[o]
	}
	return fmt.Sprintf("unknown(%d)", o)
}

// MarshalText returns the name.
func (o OnStale) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads a name.
func (o *OnStale) UnmarshalText(text []byte) error {
	i := slices.Index(onStaleNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("enforce: unknown %.40q: want one of %q", text, onStaleNames)
	}
	*o = OnStale(i)
	return nil
}
