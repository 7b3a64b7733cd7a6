package replay

import (
	"maps"
	"slices"

	"github.com/tallygate/tallygate/rules"
)

// Diff compares the keys that two rule sets hit: those that get a verdict, or are above a strict
// limit. Shadow rules count, too.
type Diff struct {
	Newly    int        `json:"newly"`     // keys that only the new rules hit
	NoLonger int        `json:"no_longer"` // keys that only the old rules hit
	Both     int        `json:"both"`
	Rules    []RuleDiff `json:"rules"`         // by name, those of either set
	TopNewly []KeyTally `json:"top_newly"`     // as in Tally
	TopGone  []KeyTally `json:"top_no_longer"` // by the old rules' counts
}

// RuleDiff is the same for the limits of one name.
type RuleDiff struct {
	Rule        string `json:"rule"`
	Verdicts    int    `json:"verdicts"` // issued
	OldVerdicts int    `json:"old_verdicts"`
	Denied      int    `json:"denied,omitempty"` // events above the strict limit
	OldDenied   int    `json:"old_denied,omitempty"`
	Newly       int    `json:"newly"`          // keys
	NoLonger    int    `json:"no_longer"`      // keys
	Only        string `json:"only,omitempty"` // new, old: the other rules have no such limit
}

// same reports whether nothing differs.
func (r *RuleDiff) same() bool {
	return r.Only == "" && r.Verdicts == r.OldVerdicts && r.Denied == r.OldDenied && r.Newly == 0 && r.NoLonger == 0
}

// diff compares two finished runs over the same events.
func diff(now, old *run) *Diff {
	inNow, inOld := now.hits(), old.hits()
	newly, gone := without(inNow, inOld), without(inOld, inNow)
	d := &Diff{
		Newly: len(newly), NoLonger: len(gone), Both: len(inNow) - len(newly),
		TopNewly: top(newly), TopGone: top(gone), Rules: []RuleDiff{},
	}
	keysNow, keysOld := perRule(inNow), perRule(inOld)
	names := map[string]struct{}{}
	for name := range now.byRule {
		names[name] = struct{}{}
	}
	for name := range old.byRule {
		names[name] = struct{}{}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		n, o := now.of(name), old.of(name)
		d.Rules = append(d.Rules, RuleDiff{
			Rule: name, Verdicts: n.Verdicts, OldVerdicts: o.Verdicts, Denied: n.Denied, OldDenied: o.Denied,
			Newly:    len(without(keysNow[name], keysOld[name])),
			NoLonger: len(without(keysOld[name], keysNow[name])), Only: only(now, old, name),
		})
	}
	return d
}

// only says which of two runs alone has a limit; "" for both.
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

// of returns the tally of a limit; the zero value when these rules do not have it.
func (r *run) of(rule string) (t RuleTally) {
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
