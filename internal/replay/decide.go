package replay

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Decide returns the verdicts that are in force at a moment for whom an event is about, and
// that cover its API: the one that decides first, shadow ones and notices last.
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

// cover counts an event for the verdicts that it comes under.
func (e *Engine) cover(ev *event.Event, at event.Micros) {
	for h := range e.about(ev) {
		if h.State == verdict.Block && h.InForce(at) && h.Covers(ev.API) {
			h.Covered++
		}
	}
}

// about iterates over the last verdicts on the event's keys.
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

// Held iterates over the last verdict of every limit and key that got one, in no order.
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

// keyOf writes the text of the event's key of some dimensions to e.key; false when the event
// lacks one.
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

// Dimension returns the event's value of a dimension, "" when it has none.
func Dimension(ev *event.Event, name string) string {
	switch name {
	case "uid":
		return ev.UID
	case "ip", "ip/64":
		if !ev.IP.IsValid() {
			return ""
		}
		ip := ev.IP.Unmap().WithZone("")
		if name == "ip" || ip.Is4() {
			return ip.String()
		}
		return netip.PrefixFrom(ip, 64).Masked().String()
	}
	v, _ := ev.Attr(strings.TrimPrefix(name, "attrs."))
	return v.Text
}
