package rulestats

import (
	"strings"

	"github.com/tallygate/tallygate/api"
)

// Metrics are those that Rules and Quality read, for the question to the programs: ?metrics=….
var Metrics = []string{
	"tallygate_rule_", "tallygate_near_limit_events_total", "tallygate_overshoot_events_total", "tallygate_verdicts_total",
	"tallygate_fuses_blown_total", "tallygate_events_total", "tallygate_event_", "tallygate_events_misplaced_total",
	"tallygate_vocabulary_mismatches_total",
}

// Rule sums a rule's numbers, its limits together.
type Rule struct {
	Name      string
	Matches   float64 // events a second; of several limits, of the one that counts most
	Near      float64 // events a second close to a limit
	Overshoot float64 // events a second above an enforced limit
	Above     float64 // such events since the console began to look
	Verdicts  float64 // a second, enforced
	Shadow    float64 // verdicts a second in shadow mode, candidates among them
	Skips     float64 // events a second that the rule could not count
	Denials   float64 // checks a second that enforcers denied
	WouldDeny float64 // checks a second that they would have denied

	Blocked   float64 // keys with a verdict in force; -1: no enforcer tells
	ShadowNow float64 // the same in shadow mode
	Share     float64 // of the keys in memory: those of Blocked and ShadowNow; -1 where these are unknown
	Blown     bool    // its fuse, in a partition
}

// RuleOf is the rule of a limit's name: writes of writes/burst, and of writes/candidate.
func RuleOf(limit string) string {
	rule, _, _ := strings.Cut(limit, "/")
	return rule
}

// World holds the programs' numbers of the moment.
type World struct {
	Aggregators []api.Status
	Enforcers   []api.Status
}

// Rules sums the numbers of the rules that have any, by their names.
func Rules(aggregators, enforcers *Tracker, now *World) map[string]*Rule {
	all := byName{}
	for _, s := range aggregators.Of("tallygate_rule_matches_total") {
		r := all.of(s.Labels["rule"])
		r.Matches = max(r.Matches, s.Rate)
	}
	all.sum(aggregators, "tallygate_near_limit_events_total", func(r *Rule, s *Series) { r.Near += s.Rate })
	all.sum(aggregators, "tallygate_rule_skips_total", func(r *Rule, s *Series) { r.Skips += s.Rate })
	all.sum(aggregators, "tallygate_overshoot_events_total", func(r *Rule, s *Series) {
		if s.Labels["mode"] == "shadow" { // it is meant to let everything pass
			return
		}
		r.Overshoot += s.Rate
		r.Above += s.Total
	})
	all.sum(aggregators, "tallygate_verdicts_total", func(r *Rule, s *Series) {
		switch {
		case s.Labels["state"] != "block":
		case s.Labels["mode"] == "shadow":
			r.Shadow += s.Rate
		default:
			r.Verdicts += s.Rate
		}
	})
	all.sum(enforcers, "tallygate_rule_checks_total", func(r *Rule, s *Series) {
		if s.Labels["action"] != "log" { // it lets requests pass
			r.Denials += s.Rate
		}
	})
	all.sum(enforcers, "tallygate_rule_would_deny_total", func(r *Rule, s *Series) { r.WouldDeny += s.Rate })
	all.now(now)
	return all
}

type byName map[string]*Rule

func (a byName) of(limit string) *Rule {
	name := RuleOf(limit)
	r := a[name]
	if r == nil {
		r = &Rule{Name: name, Blocked: -1, ShadowNow: -1, Share: -1}
		a[name] = r
	}
	return r
}

func (a byName) sum(t *Tracker, metric string, add func(*Rule, *Series)) {
	for _, s := range t.Of(metric) {
		add(a.of(s.Labels["rule"]), &s)
	}
}

// now adds what is a state, and no rate.
func (a byName) now(w *World) {
	keys := 0
	for i := range w.Aggregators {
		if agg := w.Aggregators[i].Aggregator; agg != nil {
			for _, name := range agg.Rules.Blown {
				a.of(name).Blown = true
			}
			for _, p := range agg.Partitions {
				keys += p.Keys
			}
		}
	}
	tells := a.keys(w, "tallygate_rule_blocked_keys", func(r *Rule) *float64 { return &r.Blocked })
	a.keys(w, "tallygate_rule_shadow_keys", func(r *Rule) *float64 { return &r.ShadowNow })
	for _, r := range a {
		if !tells {
			continue
		}
		r.Blocked, r.ShadowNow = max(r.Blocked, 0), max(r.ShadowNow, 0)
		if keys > 0 {
			r.Share = min((r.Blocked+r.ShadowNow)/float64(keys), 1)
		}
	}
}

// keys adds a number of keys. Every enforcer has all verdicts, so that the one which has most is right: others
// are behind, or follow in part.
func (a byName) keys(w *World, metric string, of func(*Rule) *float64) (tells bool) {
	for i := range w.Enforcers {
		samples, there := w.Enforcers[i].Metrics[metric]
		tells = tells || there
		here := map[string]float64{}
		for _, s := range samples {
			here[RuleOf(s.Labels["rule"])] += s.Value
		}
		for name, n := range here {
			to := of(a.of(name))
			*to = max(*to, n)
		}
	}
	return tells
}
