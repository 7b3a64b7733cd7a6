package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules/document"
	"github.com/tallygate/tallygate/windows"
)

// window reads the fields of a limit's window; false when there is a mistake that leaves none.
func (c *limitReader) window() bool {
	s := &c.l.Window
	s.Kind, s.Lateness = windows.Sliding, c.set.MaxLateness
	if n := c.w["window"]; n != nil {
		kind, ok := c.windowKind(n)
		if !ok {
			return false
		}
		s.Kind = kind
	}
	s.Refunds = c.l.Rule.Refunds && c.l.Rule.Count != CountDistinct
	c.inapplicable()
	c.countable()
	return windowKinds[s.Kind].read(c)
}

func (c *compiler) windowKind(n *yaml.Node) (windows.Kind, bool) {
	var names []string
	for kind := range eachKind {
		names = append(names, kind.String())
	}
	word, ok := c.Word(n, "window", names...)
	for kind := range eachKind {
		if ok && word == kind.String() {
			return kind, true
		}
	}
	return 0, false
}

// inapplicable reports fields that the window does not have.
func (c *limitReader) inapplicable() {
	kind := c.l.Window.Kind
	for _, name := range windowFieldNames {
		var of []string
		for other := range eachKind {
			if slices.Contains(windowKinds[other].fields, name) {
				of = append(of, other.String())
			}
		}
		if n := c.own[name]; n != nil && len(of) > 0 && !slices.Contains(of, kind.String()) {
			c.Fail(n, "it belongs to window: "+strings.Join(of, " and "), "a %v window has no `%s`", kind, name)
		}
	}
}

// countable reports counts and fields that a window can't have.
func (c *limitReader) countable() {
	l, o := c.l, c.o
	s, r := &l.Window, l.Rule
	distinct, rate := r.Count == CountDistinct, s.Kind.HasRate()
	switch {
	case r.Refunds && !s.Refundable():
		c.Fail(o.Node, "use tumbling, calendar or sliding", "a %v window has no refunds", s.Kind)
	case distinct && !s.Kind.CountsValues():
		c.Fail(o.Node, "use another window", "a %v can't count distinct values", s.Kind)
	case rate && len(l.Tiers) > 0:
		c.Fail(o.Get("tiers"), "write a rule for each tier, with `when`", "a %v has no `tiers`", s.Kind)
	case rate && len(l.Warn) > 0:
		c.Fail(o.Node, "use another window, or a `candidate` with a lower limit", "a %v has no `warn`", s.Kind)
	}
	s.Distinct = distinct
	s.Estimate = distinct && s.Estimates() && l.largest() > windows.ExactDistinct*event.One
	if s.Estimate {
		c.Warn(o.At("limit"), "", "above %d distinct values the count is an estimate (HyperLogLog): two of three are within %.1f%%, 19 of 20 within %.1f%%",
			windows.ExactDistinct, 100*windows.SketchError, 200*windows.SketchError)
	}
}

// length reads the length of a window that has a fixed one.
func (c *limitReader) length() bool {
	if !c.needsPer() {
		return false
	}
	per, ok := c.per()
	c.l.Window.Per, c.l.PerMin, c.l.PerMax = per, per, per
	return ok
}

func (c *limitReader) needsPer() bool {
	if c.w["per"] == nil && !c.o.Has("per") {
		c.Fail(c.o.Node, "as in per: 1m, or per: day with window: calendar", "a limit needs `per`")
	}
	return c.w["per"] != nil
}

// per reads a window's length.
func (c *limitReader) per() (event.Micros, bool) {
	n := c.w["per"]
	if s, _ := c.Text(n, "per"); units[s] != 0 {
		c.Fail(n, fmt.Sprintf("write window: calendar with it, or %s", inDuration[s]),
			"per: a civil %s has no fixed length, and a %s window needs one", s, c.l.Window.Kind)
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

func windowFieldsOf(o *document.Object) windowFields {
	w := windowFields{}
	for _, name := range windowFieldNames {
		w[name] = o.Get(name)
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
