package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/network"
	"github.com/tallygate/tallygate/rules/internal/scalar"
	"github.com/tallygate/tallygate/rules/when"
)

// Does is a rule's reaction to an event.
type Does uint8

// What a rule does with an event.
const (
	Passes    Does = iota // nothing: it is not for such events
	Counts                // it counts it
	TakesBack             // a refund: it takes it back from another event
	Resets                // an event of reset_on: it empties the windows, and is not counted
	Tells                 // an event of a denied request: it tells the key's limit, and counts nothing
)

func (d Does) String() string {
	return [...]string{"passes", "counts", "takes_back", "resets", "tells"}[d]
}

// Why rules pass an event over, besides the Skip constants.
const (
	PassAPI       = "api"           // the rule is for other APIs
	PassOutcome   = "outcome"       // for other outcomes
	PassAttr      = "attrs"         // for other values of an attribute
	PassDimension = "dimension"     // the event lacks a dimension of the key
	PassWhen      = "when"          // the predicate is false
	PassRefund    = "refund"        // it takes back, and the rule remembers no events, or it names none
	PassBefore    = "before_action" // the rule counts requests before their actions, and no events
	PassTooOld    = "too_old"       // older than max_lateness
	PassNoTime    = "no_time"       // neither the event nor its record has a time
)

// Reason is a condition of a rule that an event does not meet.
type Reason struct {
	Code string `json:"reason"` // one of the Pass or Skip constants
	Text string `json:"text"`   // in words: outcome is denied, not failure
}

// Why describes a rule's reaction to an event, and the reasons for which it does not count it.
type Why struct {
	Rule  *Rule
	Does  Does
	Unmet []Reason // all conditions that are not met; none unless it Passes
	Met   int      // how many are
	Key   []byte   // the text of the key; nil when the event lacks a dimension of it
	Hits  []Hit    // of one that does not pass: the limits
	Notes []Reason // what someone should know although it counts

	Alike bool // the rule is for other APIs, and one of them is spelled much like the event's
}

// Near reports whether the rule is at least for the event's API.
func (w *Why) Near() bool { return len(w.Unmet) == 0 || w.Unmet[0].Code != PassAPI }

// Tracer explains the reactions of rules to events: for people, where a Matcher is for counting. The two never
// disagree. It is for one goroutine.
type Tracer struct {
	set     *Set
	matcher *Matcher
	keys    eventKeys

	predicates *when.Evaluator
	names      tracedNames
	parts      map[*Rule]*when.Parts // of predicates, as far as they were asked about
}

// tracedNames are the names in predicates.
type tracedNames struct {
	scalar.Zones
	lists map[string]*network.Set
}

func (n tracedNames) Networks(name string) *network.Set { return n.lists[name] }
func (n tracedNames) MeantNetworks(string) string       { return "" } // the set is compiled: there is none

// NewTracer returns a Tracer for the set.
func (s *Set) NewTracer() *Tracer {
	t := &Tracer{
		set: s, matcher: s.NewMatcher(), keys: eventKeys{of: make([]shapeKey, len(s.Shapes))},
		predicates: when.NewEvaluator(), names: tracedNames{scalar.Zones{}, s.networks}, parts: map[*Rule]*when.Parts{},
	}
	for _, r := range s.all {
		t.predicates.Know(r.match.when)
	}
	return t
}

// Why returns what each rule does with an event, in the order of the file, and the event's one time, as
// EventTime gives it. What it returns is the caller's.
func (t *Tracer) Why(e *event.Event, broker event.Micros) (at event.Micros, all []Why) {
	at, counts := t.set.EventTime(e, broker)
	t.predicates.Next()
	t.keys.event++
	for _, r := range t.set.all {
		w := t.rule(r, e, at)
		if !counts {
			w.Does = Passes
			w.Unmet = append(w.Unmet, t.set.notInTime(at, broker))
		}
		all = append(all, w)
	}
	if counts {
		t.take(all, e, at)
	}
	return at, all
}

// take gives rules the limits that the Matcher says they count under.
func (t *Tracer) take(all []Why, e *event.Event, at event.Micros) {
	works := t.matcher.Match(e, at)
	for i := range all {
		w := &all[i]
		for j := range works {
			for _, hit := range works[j].Hits {
				if hit.Limit.Rule == w.Rule {
					if hit.Tells {
						w.Does, w.Unmet = Tells, nil
					}
					w.Hits = append(w.Hits, hit)
				}
			}
		}
		if w.deniedInSilence(e) {
			w.Unmet[0].Text += ", and it does not say which limit its key has"
		}
		for _, skip := range t.matcher.Skipped {
			if skip.Rule == w.Rule && w.Does != Passes {
				w.Notes = append(w.Notes, noteOf(skip))
			}
		}
	}
}

// deniedInSilence reports whether an event might tell a limit of the rule, since it was denied, and does not.
func (w *Why) deniedInSilence(e *event.Event) bool {
	return e.Outcome == event.OutcomeLimited && len(w.Unmet) == 1 && w.Unmet[0].Code == PassOutcome && w.Rule.counted() && w.Rule.asks()
}

// rule explains a rule's reaction to an event that comes in time.
func (t *Tracer) rule(r *Rule, e *event.Event, at event.Micros) Why {
	w := Why{Rule: r}
	check := func(met bool, reason func() Reason) {
		if met {
			w.Met++
			return
		}
		w.Unmet = append(w.Unmet, reason())
	}
	if e.Cost < 0 {
		check(e.Refunds != "" && r.Refunds, func() Reason { return r.noRefund(e) })
		t.key(&w, e, check)
		w.settle(TakesBack)
		return w
	}
	entry := r.entryFor(t.matcher.apis.find(e.API))
	check(r.covers(e.API), func() Reason {
		var reason Reason
		reason, w.Alike = r.otherAPI(e.API)
		return reason
	})
	if takes := r.match.takes(e.Outcome); len(r.match.outcomes) > 0 || !takes {
		check(takes, func() Reason { return r.otherOutcome(e.Outcome) })
	}
	for i := range r.match.attrs {
		a := &r.match.attrs[i]
		v, there := e.Attr(a.name)
		check(there && a.has(v.Text), func() Reason { return a.other(v, there) })
	}
	t.key(&w, e, check)
	if p := r.match.when; p != nil {
		holds, _ := t.predicates.Holds(p, e, at)
		check(holds, func() Reason { return t.fails(r, e, at) })
	}
	if _, _, reason := t.matcher.count(r, e, entry.weight*r.match.byOutcome.of(e.Outcome)); reason != "" {
		w.Unmet = append(w.Unmet, r.noAmount(reason, e))
	}
	if r.underWay || r.Scope == ScopeInstance {
		w.Unmet = append(w.Unmet, r.countsBefore())
	}
	if r.reset != nil && w.Key != nil && r.reset.match.wants(e) {
		w.Unmet = nil
		w.settle(Resets)
		return w
	}
	w.settle(Counts)
	return w
}

// settle sets the reaction of a rule whose conditions are all met.
func (w *Why) settle(does Does) {
	if len(w.Unmet) == 0 {
		w.Does = does
	}
}

// entryFor is the rule's entry among those for an event's API; without one its weight is 1.
func (r *Rule) entryFor(entries []apiEntry[*Rule]) apiEntry[*Rule] {
	for i := range entries {
		if entries[i].rule == r && !entries[i].reset {
			return entries[i]
		}
	}
	return apiEntry[*Rule]{weight: 1}
}

// key checks the dimensions of the rule's key, and makes its text.
func (t *Tracer) key(w *Why, e *event.Event, check func(bool, func() Reason)) {
	if w.Rule.Shape == nil {
		return
	}
	var text []byte
	whole := true
	for i := range w.Rule.Shape.parts {
		dim := &w.Rule.Shape.parts[i]
		var there bool
		text, there = t.keys.appendDim(text, e, dim)
		whole = whole && there
		check(there, func() Reason { return Reason{PassDimension, "no " + dim.name} })
	}
	if !whole {
		return
	}
	if len(text) > event.MaxKey {
		w.Unmet = append(w.Unmet, keyTooLong(len(text)))
		return
	}
	w.Key = text
}
