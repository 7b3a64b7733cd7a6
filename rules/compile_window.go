package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/windows"
)

// window reads the fields of a limit's window; false when there is a mistake that leaves none.
func (c *compiler) window(o *object, l *Limit, w, own windowFields) bool {
	s := &l.Window
	s.Kind, s.Lateness = windows.Sliding, c.set.MaxLateness
	if w["window"] != nil {
		kind, ok := c.windowKind(w["window"])
		if !ok {
			return false
		}
		s.Kind = kind
	}
	s.Refunds = l.Rule.Refunds && l.Rule.Count != CountDistinct
	c.inapplicable(s.Kind, own)
	c.countable(o, l)
	return windowKinds[s.Kind].read(c, o, l, w, own)
}

func (c *compiler) windowKind(n *yaml.Node) (windows.Kind, bool) {
	var names []string
	for kind := range eachKind {
		names = append(names, kind.String())
	}
	word, ok := c.word(n, "window", names...)
	for kind := range eachKind {
		if ok && word == kind.String() {
			return kind, true
		}
	}
	return 0, false
}

// inapplicable reports fields that the window does not have.
func (c *compiler) inapplicable(kind windows.Kind, own windowFields) {
	for _, name := range windowFieldNames {
		var of []string
		for other := range eachKind {
			if slices.Contains(windowKinds[other].fields, name) {
				of = append(of, other.String())
			}
		}
		if own[name] != nil && len(of) > 0 && !slices.Contains(of, kind.String()) {
			c.fail(own[name], "it belongs to window: "+strings.Join(of, " and "), "a %v window has no `%s`", kind, name)
		}
	}
}

// countable reports counts and fields that a window can't have.
func (c *compiler) countable(o *object, l *Limit) {
	s, r := &l.Window, l.Rule
	distinct, rate := r.Count == CountDistinct, s.Kind.HasRate()
	switch {
	case r.Refunds && !s.Refundable():
		c.fail(o.node, "use tumbling, calendar or sliding", "a %v window has no refunds", s.Kind)
	case distinct && !s.Kind.CountsValues():
		c.fail(o.node, "use another window", "a %v can't count distinct values", s.Kind)
	case rate && len(l.Tiers) > 0:
		c.fail(o.get("tiers"), "write a rule for each tier, with `when`", "a %v has no `tiers`", s.Kind)
	case rate && len(l.Warn) > 0:
		c.fail(o.node, "use another window, or a `candidate` with a lower limit", "a %v has no `warn`", s.Kind)
	}
	s.Distinct = distinct
	s.Estimate = distinct && s.Estimates() && l.largest() > windows.ExactDistinct*event.One
	if s.Estimate {
		c.warn(cmp.Or(o.get("limit"), o.node), "", "above %d distinct values the count is an estimate (HyperLogLog): two of three are within %.1f%%, 19 of 20 within %.1f%%",
			windows.ExactDistinct, 100*windows.SketchError, 200*windows.SketchError)
	}
}

// length reads the length of a window that has a fixed one.
func (c *compiler) length(o *object, l *Limit, w windowFields) bool {
	if !c.needsPer(o, w) {
		return false
	}
	per, ok := c.per(w["per"], l.Window.Kind)
	l.Window.Per, l.PerMin, l.PerMax = per, per, per
	return ok
}

func (c *compiler) needsPer(o *object, w windowFields) bool {
	if w["per"] == nil && !o.has("per") {
		c.fail(o.node, "as in per: 1m, or per: day with window: calendar", "a limit needs `per`")
	}
	return w["per"] != nil
}

// per reads a window's length.
func (c *compiler) per(n *yaml.Node, kind windows.Kind) (event.Micros, bool) {
	if s, _ := c.text(n, "per"); units[s] != 0 {
		c.fail(n, fmt.Sprintf("write window: calendar with it, or %s", inDuration[s]),
			"per: a civil %s has no fixed length, and a %s window needs one", s, kind)
		return 0, false
	}
	return c.duration(n, "per")
}

// inDuration says how to write a civil unit for the other windows.
var inDuration = map[string]string{
	"hour": "per: 1h", "day": "per: 1d", "week": "per: 7d", "month": "per: 30d", "year": "per: 365d",
}

// windowFields are the YAML values that choose a window, by the field's name.
type windowFields map[string]*yaml.Node

func windowFieldsOf(o *object) windowFields {
	w := windowFields{}
	for _, name := range windowFieldNames {
		w[name] = o.get(name)
	}
	return w
}

// or fills what is not there from what surrounds it.
func (w windowFields) or(outer windowFields) windowFields {
	filled := windowFields{}
	for _, name := range windowFieldNames {
		filled[name] = cmp.Or(w[name], outer[name])
	}
	return filled
}
