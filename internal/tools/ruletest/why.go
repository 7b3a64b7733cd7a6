package ruletest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/keytext"
	"github.com/tallygate/tallygate/internal/tools/engine"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// The bounds of what a failure says of events that did not count.
const (
	maxWhy    = 8      // lines
	maxLooked = 10_000 // events of a test that are looked at
)

// reason is why events did not count for an expectation.
type reason struct {
	line   int // of the events in the file
	rule   string
	kind   string // of the text: events of one line are told together
	text   string
	events int
	unmet  int // how many conditions were not met
}

// asked is a failed expectation, and the reasons that were found for it.
type asked struct {
	x       *Expect
	failure *Failure
	reasons []*reason
}

// why adds to failures the reasons why events did not count. It plays the test again, step by step.
func (s *Suite) why(ctx context.Context, t *Test, failures []*Failure) {
	var all []*asked
	for i, f := range failures {
		if f != nil && t.Expect[i].Want != "none" {
			all = append(all, &asked{x: &t.Expect[i], failure: f})
		}
	}
	if len(all) == 0 {
		return
	}
	p := play{suite: s, test: t}
	looks := make([]*look, len(s.sets))
	for i, set := range s.sets {
		looks[i] = newLook(set, &p)
	}
	for i := range min(len(t.Events), maxLooked) {
		if ctx.Err() != nil {
			return
		}
		for _, l := range looks {
			l.event(&t.Events[i], all)
		}
	}
	for _, a := range all {
		a.failure.Why = append(a.failure.Why, a.lines()...)
	}
}

// look counts events by one set, and asks of each what became of it.
type look struct {
	*play
	set    *rules.Set
	tracer *rules.Tracer
	engine *engine.Engine
	out    engine.Outcome
	keys   map[string]became // of the current event, by the keys' texts
}

// became is an event's fate on a key.
type became struct{ repeat, unknown, late bool }

func newLook(set *rules.Set, p *play) *look {
	l := &look{play: p, set: set, tracer: set.NewTracer(), engine: engine.New(set), keys: map[string]became{}}
	l.engine.Stepped = func(s *shard.Stepped) {
		l.keys[string(s.Key)] = became{repeat: s.Result.Repeat, unknown: s.Result.Unknown, late: s.Result.Late > 0}
	}
	return l
}

func (l *look) event(e *Event, all []*asked) {
	at, whys := l.tracer.Why(&e.Event, e.Broker)
	clear(l.keys)
	l.engine.Apply(&e.Event, e.Broker, verdict.Cause{Offset: int64(e.Line)}, &l.out)
	for _, a := range all {
		if e.Broker > a.x.At {
			continue
		}
		for i := range whys {
			w := &whys[i]
			if !a.about(w.Rule) {
				continue
			}
			if text := l.reason(a.x, w, at); text != "" && (a.x.Rule != "" || w.Near()) {
				a.add(e.Line, w, text)
			}
		}
	}
}

// about reports whether a rule could have issued the verdict that is expected.
func (a *asked) about(r *rules.Rule) bool {
	return a.x.Rule == "" && !r.Silent() || slices.ContainsFunc(r.Limits, func(l *rules.Limit) bool {
		return a.x.Rule != "" && (l.Name == a.x.Rule || l.CandidateName() == a.x.Rule)
	})
}

// reason says why an event did not count for an expectation under a rule; "" when it did.
func (l *look) reason(x *Expect, w *rules.Why, at event.Micros) string {
	key, mine := l.keyUnder(w.Rule, &x.Who)
	switch {
	case w.Does == rules.Passes:
		if w.Key != nil && mine && string(w.Key) != key {
			return "" // of somebody else
		}
		return texts(w.Unmet)
	case !mine:
		return ""
	case string(w.Key) != key:
		dims, _ := event.ParseKey(w.Key)
		return "it counts under " + keytext.Format(dims)
	}
	is := l.keys[key]
	switch {
	case w.Does == rules.Resets:
		return "it empties the count at " + l.clock(at)
	case w.Does == rules.Tells:
		return "its outcome says that it was denied: it tells the limit, and counts nothing"
	case is.repeat:
		return "the key has counted its id before"
	case is.unknown:
		return "the key remembers no event of the id that it takes back"
	case w.Does == rules.TakesBack:
		return "it takes back what another event counted"
	case is.late:
		return l.late(w, at)
	}
	return ""
}

// late says why an event is too late for the limits of a rule.
func (l *look) late(w *rules.Why, at event.Micros) string {
	dims, _ := event.ParseKey(w.Key)
	for _, e := range l.engine.Explain(dims, "", at) {
		for _, hit := range w.Hits {
			if text := e.TooLate(at); hit.Limit.Name == e.Rule && text != "" {
				return text
			}
		}
	}
	return ""
}

// keyUnder is the text of the expectation's key under a rule; false when it names no such key.
func (l *look) keyUnder(r *rules.Rule, who *event.Event) (string, bool) {
	if r.Shape == nil {
		return "", false
	}
	var key []byte
	for _, name := range r.Shape.Dims {
		value := engine.Dimension(who, name)
		if value == "" {
			return "", false
		}
		key = event.AppendDim(key, name, value)
	}
	return string(key), true
}

func texts(list []rules.Reason) string {
	parts := make([]string, len(list))
	for i := range list {
		parts[i] = list[i].Text
	}
	return strings.Join(parts, "; ")
}

func (a *asked) add(line int, w *rules.Why, text string) {
	kind := w.Does.String()
	for i := range w.Unmet {
		kind += " " + w.Unmet[i].Code
	}
	for _, r := range a.reasons {
		if r.line == line && r.rule == w.Rule.Name && r.kind == kind {
			r.events++
			return
		}
	}
	a.reasons = append(a.reasons, &reason{line: line, rule: w.Rule.Name, kind: kind, text: text, events: 1, unmet: len(w.Unmet)})
}

// lines are the reasons in the order of the file; when there are many, those that miss least.
func (a *asked) lines() []string {
	list := a.reasons
	if len(list) > maxWhy {
		slices.SortStableFunc(list, func(x, y *reason) int { return x.unmet - y.unmet })
		list = list[:maxWhy]
	}
	slices.SortStableFunc(list, func(x, y *reason) int { return x.line - y.line })
	var out []string
	for _, r := range list {
		what := fmt.Sprintf("the event of line %d", r.line)
		if r.events > 1 {
			what = fmt.Sprintf("%d events of line %d", r.events, r.line)
		}
		out = append(out, fmt.Sprintf("%s: not counted by %s: %s", what, r.rule, r.text))
	}
	if more := len(a.reasons) - len(list); more > 0 {
		out = append(out, fmt.Sprintf("(%d more reasons: `tallygate trace` shows what each rule does with an event)", more))
	}
	return out
}

// elsewhere says of verdicts that are in force for the expectation's keys why they are not what it asks for.
func (p *play) elsewhere(x *Expect) (out []string) {
	if x.Want == "none" {
		return nil
	}
	for _, one := range p.engines {
		for h := range one.Held() {
			if !h.InForce(x.At) || h.State == verdict.Clear || x.Rule != "" && h.Rule != x.Rule || !concerns(&h.Verdict, &x.Who) {
				continue
			}
			name := h.Action.String() + " by " + h.Rule
			switch shadow := h.Mode == verdict.Shadow; {
			case h.State == verdict.Warn && x.Want != "warn", h.State != verdict.Warn && x.Want == "warn":
			case !h.Covers(x.Who.API):
				out = append(out, fmt.Sprintf("%s is in force for %s, and not for %s", name, strings.Join(h.APIs, ", "), x.Who.API))
			case shadow && !x.Shadow:
				out = append(out, name+" is in force in shadow mode: `mode: shadow` expects that")
			case !shadow && x.Shadow:
				out = append(out, name+" is in force, and not in shadow mode: leave `mode: shadow` out")
			}
		}
	}
	slices.Sort(out)
	return out
}
