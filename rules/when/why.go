package when

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// Failure is why a predicate does not hold for an event.
type Failure struct {
	Part   string   // the least part of it that decides this: of parts joined by `and`, the first one that does not hold
	Fails  bool     // the part cannot be evaluated, as a text that is compared with a number; else it is false
	Values []string // what the part asks for, as the event has it: attrs.amount is 50
}

// String says it in one line.
func (f *Failure) String() string {
	text := scalar.Shortened(f.Part) + " is false"
	if f.Fails {
		text = scalar.Shortened(f.Part) + " cannot be evaluated"
	}
	if len(f.Values) > 0 {
		text += " (" + strings.Join(f.Values, ", ") + ")"
	}
	return text
}

// Why says why a predicate that was taken apart, which the Evaluator knows, does not hold for an event.
func (ev *Evaluator) Why(p *Parts, e *event.Event, at event.Micros) Failure {
	p = ev.deciding(p, e, at)
	f := Failure{Part: p.text}
	_, ok := ev.truth(p, e, at)
	f.Fails = !ok
	for _, name := range p.variables() {
		if value := valueText(name, e, at); value != "" {
			f.Values = append(f.Values, name+" is "+value)
		}
	}
	return f
}

// deciding is the least part because of which a predicate does not hold.
func (ev *Evaluator) deciding(p *Parts, e *event.Event, at event.Micros) *Parts {
	if p.op != '&' {
		return p
	}
	for _, part := range p.of {
		if holds, ok := ev.truth(part, e, at); (!ok || !holds) && part.evaluable() {
			return ev.deciding(part, e, at)
		}
	}
	return p
}

// evaluable reports whether it is known of a part whether it holds: all in it can stand alone.
func (p *Parts) evaluable() bool {
	return p.whole != nil || len(p.of) > 0 && !slices.ContainsFunc(p.of, func(part *Parts) bool { return !part.evaluable() })
}

// truth evaluates a part; ok is false when that fails.
func (ev *Evaluator) truth(p *Parts, e *event.Event, at event.Micros) (holds, ok bool) {
	if p.whole != nil {
		return ev.Holds(p.whole, e, at)
	}
	if p.op == 0 {
		return false, false
	}
	first, ok := ev.truth(p.of[0], e, at)
	switch {
	case !ok:
		return false, false
	case p.op == '!':
		return !first, true
	case p.op == '&' && !first, p.op == '|' && first:
		return first, true
	case p.op == '?' && !first:
		return ev.truth(p.of[2], e, at)
	}
	return ev.truth(p.of[1], e, at)
}

// variables lists the names in a part, each once.
func (p *Parts) variables() (names []string) {
	if p.whole != nil {
		return p.asks
	}
	for _, part := range p.of {
		for _, name := range part.variables() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// valueText is a variable as a predicate would write it; "" for the attributes as a whole.
func valueText(name string, e *event.Event, at event.Micros) string {
	attr, isAttr := strings.CutPrefix(name, attrVariable(""))
	switch {
	case isAttr:
		v, ok := e.Attr(attr)
		switch {
		case !ok:
			return "absent"
		case v.Kind == event.String:
			return quoted(v.Text)
		}
		return scalar.Shortened(v.Text)
	case name == "attrs":
		return ""
	case name == "cost":
		return e.Cost.String()
	case name == "time":
		return at.String()
	}
	switch v := valueOf(name, e, at).(type) {
	case string:
		return quoted(v)
	default:
		return "absent"
	}
}

func quoted(text string) string { return strconv.Quote(scalar.Shortened(text)) }
