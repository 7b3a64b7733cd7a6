package enforce

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/pipeline/enforce/internal/index"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// InDoubt is what checks answer while the table cannot know: before the first snapshot, when it is further behind than
// Config.MaxStaleness, and when nobody has called Run.
type InDoubt uint8

const (
	// LastKnown enforces what the table has, each verdict until its end. Without any snapshot that is nothing.
	LastKnown InDoubt = iota
	// Open lets through.
	Open
	// Closed denies, as Decision.Unavailable says.
	Closed
	// Local is LastKnown, and a limiter in this process counts checks meanwhile: see RuleInDoubt.
	Local
)

// RuleInDoubt is what holds for one rule while in doubt, instead of Config.InDoubt. The aggregator's rules don't
// reach applications, so Closed and Local are told here what the rule is about.
type RuleInDoubt struct {
	// Do is what checks answer. Open leaves the rule's verdicts out. Closed denies the APIs.
	Do InDoubt
	// APIs are names and patterns as the rule's match has them; required for Closed and Local. With Config.InDoubt Closed,
	// these APIs are closed only if the rules say so that name them.
	APIs []string
	// Key are the rule's dimensions; nil is uid. For Local.
	Key []string
	// Limit and Per are the rule's; required for Local. This process grants Limit ÷ Config.Instances, at least 1, at once, and as
	// much per Per, evenly. It counts checks: what else the rule looks at it doesn't know.
	Limit int
	Per   time.Duration
}

func (c *Config) validateDoubt() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("enforce: "+format, args...))
		}
	}
	wrong(c.InDoubt > Local, "InDoubt is %d, want LastKnown, Open, Closed or Local", c.InDoubt)
	wrong(c.MaxStaleness < 0, "MaxStaleness is %v, want none negative", c.MaxStaleness)
	wrong(c.Instances < 1, "Instances is %d, want at least 1", c.Instances)
	locals := 0
	for name, r := range c.Rules {
		wrong(r.Do > Local, "Rules[%q].Do is %d, want LastKnown, Open, Closed or Local", name, r.Do)
		wrong((r.Do == Closed || r.Do == Local) && len(r.APIs) == 0, "Rules[%q].APIs is empty: what is closed or limited?", name)
		if r.Do == Local {
			locals++
			wrong(r.Limit < 1 || r.Per < time.Microsecond, "Rules[%q] has Limit %d and Per %v, want both positive", name, r.Limit, r.Per)
			for _, dim := range r.Key {
				attr, ok := strings.CutPrefix(dim, "attrs.")
				wrong(dim != dimUID && dim != dimIP && dim != dimNet && (!ok || attr == ""), "Rules[%q].Key has %q, want uid, ip, ip/64 or attrs.NAME", name, dim)
			}
		}
	}
	wrong(c.InDoubt == Local && locals == 0, "InDoubt is Local, and no rule in Rules has a local limit")
	return errors.Join(errs...)
}

// doubts is what a table does while in doubt.
type doubts struct {
	always   InDoubt
	rules    map[string]InDoubt
	closed   []verdict.Verdict // of which only APIs is set
	local    []*localLimit
	eloquent []verdict.Verdict // the same, of all rules that name APIs
}

func newDoubts(c *Config) doubts {
	d := doubts{always: c.InDoubt, rules: map[string]InDoubt{}}
	for name, r := range c.Rules {
		d.rules[name] = r.Do
		apis := verdict.Verdict{APIs: slices.Clone(r.APIs)}
		if len(r.APIs) > 0 {
			d.eloquent = append(d.eloquent, apis)
		}
		switch r.Do {
		case Closed:
			d.closed = append(d.closed, apis)
		case Local:
			d.local = append(d.local, newLocalLimit(name, r, c.Instances))
		}
	}
	slices.SortFunc(d.local, func(a, b *localLimit) int { return strings.Compare(a.verdict.Rule, b.verdict.Rule) })
	return d
}

// matter reports whether being in doubt changes any answer.
func (d *doubts) matter() bool { return d.always != LastKnown || len(d.rules) > 0 }

// enforces reports whether a rule's verdicts count. What holds for a rule holds for its limits, which are named rule/limit.
func (d *doubts) enforces(rule string) bool {
	do, ok := d.rules[rule]
	if !ok {
		base, _, _ := strings.Cut(rule, "/")
		if do, ok = d.rules[base]; !ok {
			do = d.always
		}
	}
	return do != Open
}

func (d *doubts) closes(api string) bool {
	covers := func(v verdict.Verdict) bool { return v.Covers(api) }
	return slices.ContainsFunc(d.closed, covers) || d.always == Closed && !slices.ContainsFunc(d.eloquent, covers)
}

// unavailable is why a check is denied that nobody can answer.
var unavailable = verdict.Verdict{Action: verdict.ActBlock}

// Unavailable reports whether the check is denied only because the table is in doubt, and closed then: there is no verdict, it is
// the service's trouble and not the caller's, and nobody knows until when. HTTP has 503 for that, without Retry-After.
func (d Decision) Unavailable() bool { return d.by == &unavailable }

// checkUnusual is a check while the table is in doubt, or off.
func (t *Table) checkUnusual(mode uint32, api string, dims []event.Dim) Decision {
	at := t.unattended()
	if mode&modeOff != 0 {
		return Decision{Allowed: true, At: at}
	}
	so := judged{enforces: t.doubts.enforces}
	t.index.Each(dims, func(r index.Record) bool {
		so.judge(r, at, 0, api)
		return true
	})
	d := so.decision(at)
	if !d.Allowed {
		return d
	}
	if t.doubts.closes(api) {
		return Decision{At: at, by: &unavailable}
	}
	for _, l := range t.doubts.local {
		if wait, ok := l.take(event.FromDuration(time.Since(t.started))+1, api, dims); !ok { // at 0 every slot would be taken
			return Decision{Until: at + wait, At: at, by: &l.verdict}
		}
	}
	return d
}

var doubtNames = [...]string{LastKnown: "last-known", Open: "open", Closed: "closed", Local: "local"}

// String returns the name that configurations have for it: last-known, open, closed or local.
func (d InDoubt) String() string {
	if int(d) < len(doubtNames) {
		return doubtNames[d]
	}
	return fmt.Sprintf("unknown(%d)", d)
}

// MarshalText returns the name.
func (d InDoubt) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a name.
func (d *InDoubt) UnmarshalText(text []byte) error {
	i := slices.Index(doubtNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("enforce: unknown %.40q: want one of %q", text, doubtNames)
	}
	*d = InDoubt(i)
	return nil
}
