package replay

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// Diff compares what two rule sets do with the same events: the keys that they hit, which get a verdict or
// are above a strict limit, and the events that they keep out, which a verdict covers or a strict limit
// denies. Shadow rules count, too.
type Diff struct {
	Newly    int        `json:"newly"`     // keys that only the new rules hit
	NoLonger int        `json:"no_longer"` // keys that only the old rules hit
	Both     int        `json:"both"`
	Harder   int        `json:"harder"` // keys hit by both, of which the new rules keep out more events
	Milder   int        `json:"milder"` // or fewer
	Events   EventDiff  `json:"events"`
	Rules    []RuleDiff `json:"rules"`         // by name, those of either set
	TopNewly []KeyTally `json:"top_newly"`     // as in Tally
	TopGone  []KeyTally `json:"top_no_longer"` // by the old rules' counts
	// Of the keys hit by both, those with the largest differences.
	TopHarder []KeyDiff `json:"top_harder"`
	TopMilder []KeyDiff `json:"top_milder"`
}

// EventDiff compares which events two rule sets keep out.
type EventDiff struct {
	Newly    int `json:"newly"`     // only the new rules do
	NoLonger int `json:"no_longer"` // only the old rules do
	Both     int `json:"both"`
}

// KeyDiff is a key that two rule sets hit, and how many of its events each keeps out.
type KeyDiff struct {
	Key   string   `json:"key"`
	Out   int      `json:"events"`
	Old   int      `json:"old_events"`
	Rules []string `json:"rules"` // of the new ones
}

// RuleDiff is the same for the limits of one name.
type RuleDiff struct {
	Rule        string `json:"rule"`
	Verdicts    int    `json:"verdicts"` // issued
	OldVerdicts int    `json:"old_verdicts"`
	Denied      int    `json:"denied,omitempty"` // events above the strict limit
	OldDenied   int    `json:"old_denied,omitempty"`
	Covered     int    `json:"covered"` // events
	OldCovered  int    `json:"old_covered"`
	Newly       int    `json:"newly"`     // keys
	NoLonger    int    `json:"no_longer"` // keys
	// Events that only the new limit keeps out, and only the old one.
	EventsNewly    int          `json:"events_newly"`
	EventsNoLonger int          `json:"events_no_longer"`
	Mode           verdict.Mode `json:"mode"` // of the new rules, unless only the old ones have the limit
	OldMode        verdict.Mode `json:"old_mode"`
	Only           string       `json:"only,omitempty"` // new, old: the other rules have no such limit
}

// Differs reports whether anything differs.
func (r RuleDiff) Differs() bool { return !r.same() }

func (r *RuleDiff) same() bool {
	return r.Only == "" && r.Verdicts == r.OldVerdicts && r.Denied == r.OldDenied && r.Newly == 0 && r.NoLonger == 0 &&
		r.Covered == r.OldCovered && r.EventsNewly == 0 && r.EventsNoLonger == 0 && r.Mode == r.OldMode
}

// diff compares two finished runs over the same events.
func diff(now, old *run, events *changes) *Diff {
	inNow, inOld := now.hits(), old.hits()
	newly, gone := without(inNow, inOld), without(inOld, inNow)
	d := &Diff{
		Newly: len(newly), NoLonger: len(gone), Both: len(inNow) - len(newly),
		TopNewly: top(newly), TopGone: top(gone), Rules: []RuleDiff{},
		Events: EventDiff{Newly: events.newly, NoLonger: events.noLonger, Both: events.both},
	}
	d.compareKeys(inNow, inOld)
	keysNow, keysOld := perRule(inNow), perRule(inOld)
	names := map[string]struct{}{}
	for name := range now.byRule {
		names[name] = struct{}{}
	}
	for name := range old.byRule {
		names[name] = struct{}{}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		n, o := now.tallyOf(name), old.tallyOf(name)
		r := RuleDiff{
			Rule: name, Verdicts: n.Verdicts, OldVerdicts: o.Verdicts, Denied: n.Denied, OldDenied: o.Denied,
			Covered: n.Covered, OldCovered: o.Covered, Mode: n.Mode, OldMode: o.Mode,
			Newly:    len(without(keysNow[name], keysOld[name])),
			NoLonger: len(without(keysOld[name], keysNow[name])), Only: only(now, old, name),
		}
		if e := events.rules[name]; e != nil {
			r.EventsNewly, r.EventsNoLonger = e.newly, e.noLonger
		}
		switch r.Only {
		case "new":
			r.OldMode = r.Mode
		case "old":
			r.Mode = r.OldMode
		}
		d.Rules = append(d.Rules, r)
	}
	return d
}

// compareKeys compares how many events of the keys that both hit each keeps out.
func (d *Diff) compareKeys(now, old map[string]*KeyTally) {
	harder, milder := []KeyDiff{}, []KeyDiff{}
	for key, n := range now {
		o := old[key]
		if o == nil || n.out == o.out {
			continue
		}
		one := KeyDiff{Key: key, Out: n.out, Old: o.out, Rules: slices.Sorted(slices.Values(n.Rules))}
		if n.out > o.out {
			harder = append(harder, one)
		} else {
			milder = append(milder, one)
		}
	}
	d.Harder, d.Milder = len(harder), len(milder)
	d.TopHarder, d.TopMilder = topDiffs(harder), topDiffs(milder)
}

// topDiffs returns the keys with the largest differences, the largest first.
func topDiffs(all []KeyDiff) []KeyDiff {
	by := func(k KeyDiff) int { return max(k.Out-k.Old, k.Old-k.Out) }
	slices.SortFunc(all, func(a, b KeyDiff) int { return cmp.Or(cmp.Compare(by(b), by(a)), cmp.Compare(a.Key, b.Key)) })
	return all[:min(len(all), topKeys)]
}

// only names the run that alone has a limit; "" for both.
func only(now, old *run, rule string) string {
	isNew, isOld := now.has(rule), old.has(rule)
	switch {
	case !isOld:
		return "new"
	case !isNew:
		return "old"
	}
	return ""
}

// has reports whether the run's rules have a limit, or a candidate, of that name.
func (r *run) has(name string) bool {
	return slices.ContainsFunc(r.engine.Set.Limits, func(l *rules.Limit) bool { return l.Name == name || l.CandidateName() == name })
}

// tallyOf returns the tally of a limit; the zero value when these rules do not have it.
func (r *run) tallyOf(rule string) (t RuleTally) {
	if i, ok := r.byRule[rule]; ok {
		t = r.tally.Rules[i]
	}
	return t
}

// perRule returns the keys that each limit hit.
func perRule(keys map[string]*KeyTally) map[string]map[string]*KeyTally {
	out := map[string]map[string]*KeyTally{}
	for key, k := range keys {
		for _, rule := range k.Rules {
			if out[rule] == nil {
				out[rule] = map[string]*KeyTally{}
			}
			out[rule][key] = k
		}
	}
	return out
}

// without returns the entries of a whose keys b lacks.
func without(a, b map[string]*KeyTally) map[string]*KeyTally {
	out := map[string]*KeyTally{}
	for key, k := range a {
		if b[key] == nil {
			out[key] = k
		}
	}
	return out
}
