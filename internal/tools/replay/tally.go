package replay

import (
	"cmp"
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/engine"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// Tally is the result of a replay: counts of events, keys and verdicts.
type Tally struct {
	Events    int `json:"events"`
	Bad       int `json:"bad"`       // malformed lines and records
	TooOld    int `json:"too_old"`   // older than max_lateness when the broker saw them
	Unmatched int `json:"unmatched"` // that no rule counts
	Repeats   int `json:"repeats"`   // events whose id a key has counted before
	Late      int `json:"late"`      // limits whose window had ended
	NoTime    int `json:"no_time"`   // with neither a time nor a broker time
	// The earliest and the latest event time; null without events.
	From event.Micros `json:"from"`
	To   event.Micros `json:"to"`
	Keys int          `json:"keys"` // keys with a counter

	Verdicts int         `json:"verdicts"` // issued
	Blocked  int         `json:"blocked"`  // keys that got a verdict, or were above a strict limit
	Covered  int         `json:"covered"`  // events covered by a verdict in force, or by several
	Denied   int         `json:"denied"`   // events above a strict limit: their requests would have been denied
	Rules    []RuleTally `json:"rules"`    // each limit, in the rule file's order, then candidates
	Top      []KeyTally  `json:"top"`      // the keys with the most covered events

	// The rules that count requests before their actions, of which events tell nothing.
	NotReplayed []string `json:"not_replayed,omitempty"`
}

// RuleTally is the result of one limit.
type RuleTally struct {
	Rule     string         `json:"rule"`
	Mode     verdict.Mode   `json:"mode"`
	Counted  int            `json:"counted"`  // events that it counted
	Skipped  map[string]int `json:"skipped"`  // events that it could not count, by reason; of bad_limit it counted them by `else`
	Verdicts int            `json:"verdicts"` // issued
	Warnings int            `json:"warnings"` // notices
	Keys     int            `json:"keys"`     // that got them, or were above the limit if it is strict
	Covered  int            `json:"covered"`  // events covered by a verdict in force
	Strict   bool           `json:"strict,omitempty"`
	Denied   int            `json:"denied,omitempty"` // events above it, if it is strict
	// Verdicts by the hour of their event, without empty hours.
	PerHour []HourTally `json:"per_hour"`
	// When its rule's fuse blew: later verdicts are in shadow mode; null if it did not.
	Blown event.Micros `json:"fuse_blown"`

	hours map[event.Micros]int
}

// HourTally counts the verdicts issued in one hour.
type HourTally struct {
	Hour     event.Micros `json:"hour"`
	Verdicts int          `json:"verdicts"`
}

// KeyTally is one key that got verdicts. An event counts once, by however many limits it is covered.
type KeyTally struct {
	Key      string   `json:"key"`
	Verdicts int      `json:"verdicts"`
	Covered  int      `json:"covered"`
	Denied   int      `json:"denied,omitempty"`
	Rules    []string `json:"rules"`

	out int // events that were covered or denied: what a key is listed for
}

// topKeys bounds the keys of a Tally.
const topKeys = 10

// run replays with one rule set.
type run struct {
	engine *engine.Engine
	tally  Tally
	byRule map[string]int                 // of tally.Rules
	denied map[string]map[string]struct{} // the strict limits that a key was above, by its text
	kept   kept
	keys   map[string]*kept // by the key's text
	out    engine.Outcome
}

func newRun(set *rules.Set) *run {
	r := &run{engine: engine.New(set), byRule: map[string]int{}, denied: map[string]map[string]struct{}{}, keys: map[string]*kept{}}
	r.tally.From, r.tally.To = event.NoTime, event.NoTime
	for _, l := range set.Limits {
		i := r.rule(l.Name, l.Rule.Mode)
		r.tally.Rules[i].Strict = l.Rule.Strict != nil && !l.Shadow
	}
	for _, other := range slices.Concat(set.InFlight, set.Instance) {
		r.tally.NotReplayed = append(r.tally.NotReplayed, other.Name)
	}
	return r
}

// rule returns the index of a limit's tally, and adds one if needed.
func (r *run) rule(name string, mode verdict.Mode) int {
	i, ok := r.byRule[name]
	if !ok {
		i = len(r.tally.Rules)
		r.byRule[name] = i
		r.tally.Rules = append(r.tally.Rules, RuleTally{Rule: name, Mode: mode, Blown: event.NoTime, Skipped: map[string]int{}, hours: map[event.Micros]int{}})
	}
	return i
}

// apply counts an event, and adds its outcome to the tally.
func (r *run) apply(rec *Record) {
	t, out := &r.tally, &r.out
	r.engine.Apply(&rec.Event, rec.Broker, rec.Cause, out)
	t.Events++
	if out.At != event.NoTime {
		t.To = max(t.To, out.At)
		if t.From == event.NoTime || out.At < t.From {
			t.From = out.At
		}
	}
	switch {
	case out.TooOld:
		t.TooOld++
	case out.NoTime:
		t.NoTime++
	case len(out.Hits)+len(out.Told) == 0:
		t.Unmatched++
	}
	if out.Repeats > 0 {
		t.Repeats++
	}
	t.Late += out.Late
	for _, l := range out.Hits {
		t.Rules[r.rule(l.Name, l.Rule.Mode)].Counted++
	}
	for _, s := range out.Skipped {
		for _, l := range s.Rule.Limits {
			t.Rules[r.rule(l.Name, l.Rule.Mode)].Skipped[s.Reason]++
		}
	}
	for _, blown := range out.Blown {
		for _, l := range blown.Limits {
			t.Rules[r.rule(l.Name, l.Rule.Mode)].Blown = out.At
		}
	}
	r.denials(out.Denied)
	r.keep(out)
	for i := range out.Changes {
		if v := &out.Changes[i]; out.Issued[i] {
			r.issued(v, out.At)
		}
	}
}

func (r *run) issued(v *verdict.Verdict, at event.Micros) {
	rt := &r.tally.Rules[r.rule(v.Rule, v.Mode)]
	if v.State == verdict.Warn {
		rt.Warnings++
		return
	}
	r.tally.Verdicts++
	rt.Verdicts++
	hour := at - at%event.Hour
	if at%event.Hour < 0 {
		hour -= event.Hour
	}
	rt.hours[hour]++
}

// denials takes in the strict limits that an event counted above.
func (r *run) denials(all []engine.Denial) {
	for i := range all {
		d := &all[i]
		r.tally.Rules[r.rule(d.Limit.Name, d.Limit.Rule.Mode)].Denied++
		if r.denied[d.Key] == nil {
			r.denied[d.Key] = map[string]struct{}{}
		}
		r.denied[d.Key][d.Limit.Name] = struct{}{}
	}
}

// finish completes the tally.
func (r *run) finish() *Tally {
	t := &r.tally
	t.Keys, t.Covered, t.Denied = r.engine.Keys(), r.kept.covered, r.kept.denied
	for h := range r.engine.Held() {
		if h.State == verdict.Warn {
			continue
		}
		rt := &t.Rules[r.rule(h.Rule, h.Mode)]
		rt.Covered += h.Covered
	}
	keys := r.hits()
	for _, k := range keys {
		for _, name := range k.Rules {
			t.Rules[r.byRule[name]].Keys++
		}
	}
	t.Blocked = len(keys)
	t.Top = top(keys)
	for i := range t.Rules {
		rt := &t.Rules[i]
		rt.PerHour = []HourTally{}
		for hour, n := range rt.hours {
			rt.PerHour = append(rt.PerHour, HourTally{hour, n})
		}
		slices.SortFunc(rt.PerHour, func(a, b HourTally) int { return cmp.Compare(a.Hour, b.Hour) })
	}
	return t
}

// hits returns the keys that got a verdict, or were above a strict limit.
func (r *run) hits() map[string]*KeyTally {
	keys := map[string]*KeyTally{}
	of := func(key string) *KeyTally {
		k := keys[key]
		if k == nil {
			k = &KeyTally{Key: key}
			if n := r.keys[key]; n != nil {
				k.Covered, k.Denied, k.out = n.covered, n.denied, n.out
			}
			keys[key] = k
		}
		return k
	}
	for h := range r.engine.Held() {
		if h.State == verdict.Warn {
			continue
		}
		k := of(h.Key)
		k.Verdicts += h.Issued
		k.Rules = append(k.Rules, h.Rule)
	}
	for key, rules := range r.denied {
		k := of(key)
		for rule := range rules {
			if !slices.Contains(k.Rules, rule) {
				k.Rules = append(k.Rules, rule)
			}
		}
	}
	return keys
}

// top returns the keys with the most covered and denied events, the most first.
func top(keys map[string]*KeyTally) []KeyTally {
	all := make([]KeyTally, 0, len(keys))
	for _, k := range keys {
		slices.Sort(k.Rules)
		all = append(all, *k)
	}
	slices.SortFunc(all, func(a, b KeyTally) int {
		return cmp.Or(cmp.Compare(b.out, a.out), cmp.Compare(b.Verdicts, a.Verdicts), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(len(all), topKeys)]
}
