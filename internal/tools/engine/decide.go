package engine

import (
	"iter"
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// Decide returns the verdicts in force at a moment that concern the event's keys and cover its API:
// the deciding one first, shadow verdicts and notices last.
func (e *Engine) Decide(ev *event.Event, at event.Micros) []*Held {
	var out []*Held
	for h := range e.about(ev) {
		if h.InForce(at) && h.Covers(ev.API) {
			out = append(out, h)
		}
	}
	slices.SortStableFunc(out, func(a, b *Held) int { return verdict.Compare(&a.Verdict, &b.Verdict) })
	return out
}

// cover counts an event for the verdicts that cover it.
func (e *Engine) cover(ev *event.Event, at event.Micros, out *Outcome) {
	for h := range e.about(ev) {
		if h.State == verdict.Block && h.InForce(at) && h.Covers(ev.API) {
			h.Covered++
			out.Covered = append(out.Covered, Cover{Rule: h.Rule, Key: h.Key})
		}
	}
}

// about iterates over the last verdicts of the event's keys.
func (e *Engine) about(ev *event.Event) iter.Seq[*Held] {
	return func(yield func(*Held) bool) {
		for i := range e.shapes {
			if s := &e.shapes[i]; !s.used || !e.keyOf(ev, s.dims) {
				continue
			}
			for _, h := range e.held[string(e.key)] {
				if !yield(h) {
					return
				}
			}
		}
	}
}

// Held iterates over the last verdict of every limit and key that has one, in no order.
func (e *Engine) Held() iter.Seq[*Held] {
	return func(yield func(*Held) bool) {
		for _, list := range e.held {
			for _, h := range list {
				if !yield(h) {
					return
				}
			}
		}
	}
}

// keyOf writes the text of the event's key with these dimensions to e.key. It returns false if the
// event lacks one.
func (e *Engine) keyOf(ev *event.Event, dims []string) bool {
	e.key = e.key[:0]
	for _, name := range dims {
		value := Dimension(ev, name)
		if value == "" {
			return false
		}
		e.key = event.AppendDim(e.key, name, value)
	}
	return true
}

// Dimension returns the event's value of a dimension, "" if it has none.
func Dimension(ev *event.Event, name string) string {
	value, _ := ev.Dim(name)
	return value
}
