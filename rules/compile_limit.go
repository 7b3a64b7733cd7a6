package rules

import (
	"cmp"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/windows"
)

// minGrain is the least time between two publications of one verdict that moves.
const minGrain = 100 * event.Millisecond

// limits reads a rule's limit, or its stacked limits.
func (c *compiler) limits(o *object, r *Rule) {
	inherited := windowFieldsOf(o)
	stacked := o.get("limits")
	if stacked == nil {
		if !o.has("limits") {
			c.required(o, "a rule", "limit")
			c.limit(o, r, r.Name, inherited.or(c.defaults.window), inherited)
		}
		return
	}
	if n := o.get("limit"); n != nil {
		c.fail(n, "put it into the list too", "a rule has `limit` or `limits`, not both")
	}
	if stacked.Kind != yaml.SequenceNode || len(stacked.Content) == 0 {
		c.fail(stacked, "as in limits: [{name: burst, limit: 5, per: 1s}, …]", "limits is a list of limits, not %s", emptyOr(stacked))
		return
	}
	names := map[string]int{}
	for _, n := range c.items(stacked) {
		lo, ok := c.object(n, "a limit", append([]string{"name", "limit"}, windowFieldNames...)...)
		if !ok {
			continue
		}
		c.required(lo, "a limit", "name", "limit")
		name, ok := c.name(lo.get("name"), "a limit's name")
		if line, twice := names[name]; ok && twice {
			c.fail(lo.get("name"), "", "this rule has a limit named %q already, on line %d", name, line)
		}
		names[name] = n.Line
		own := windowFieldsOf(lo)
		c.limit(lo, r, r.Name+"/"+name, own.or(inherited).or(c.defaults.window), own)
	}
}

func emptyOr(n *yaml.Node) string {
	if n.Kind == yaml.SequenceNode {
		return "an empty list"
	}
	return describe(n)
}

// limit reads one limit and its window. own are the fields that were written for it, and not
// for several.
func (c *compiler) limit(o *object, r *Rule, name string, w, own windowFields) {
	before := len(c.errs)
	l := &Limit{Index: len(c.set.Limits), Rule: r, Name: name}
	if n := o.get("limit"); n != nil {
		l.Limit = c.limitNumber(n, r)
	}
	if !c.window(o, l, w, own) || len(c.errs) > before || l.Limit == 0 {
		return
	}
	if err := l.Window.Validate(); err != nil {
		c.fail(cmp.Or(own.resolution, w.per), "", "%s", strings.ReplaceAll(err.Error(), "windows: ", ""))
		return
	}
	l.Grain = max(l.PerMin/60, minGrain)
	l.Hash = sectionHash(l)
	if other := c.set.byHash[l.Hash]; other != nil && len(c.errs) == 0 {
		c.fail(o.node, "rename one of them", "the counters of %q and %q have one name in the state", name, other.Name)
	}
	c.set.byHash[l.Hash] = l
	c.warnHeavy(o, l)
	r.Limits = append(r.Limits, l)
	c.set.Limits = append(c.set.Limits, l)
}

func (c *compiler) limitNumber(n *yaml.Node, r *Rule) event.Decimal {
	s, ok := c.text(n, "limit")
	if !ok {
		return 0
	}
	if s == "unlimited" {
		c.fail(n, "", "%s", notBuiltMessage("unlimited"))
		return 0
	}
	d, problem, hint := parseNumber(s)
	switch {
	case problem != "":
		c.fail(n, hint, "limit: %s", problem)
		return 0
	case r.Count == CountEvents && !d.Whole():
		c.fail(n, "only the limit of a sum may be a fraction", "limit: events are counted in whole numbers, not %s", s)
		return 0
	}
	return d
}

// warnHeavy warns of an API of which a single event is over the limit.
func (c *compiler) warnHeavy(o *object, l *Limit) {
	if l.Rule.Count != CountEvents {
		return
	}
	for _, a := range l.Rule.match.apis {
		if event.One.TimesInt(a.weight) > l.Limit {
			c.warn(o.get("limit"), "", "one event of %s weighs %d, more than the limit", a.pattern, a.weight)
			return
		}
	}
}

// window reads the fields of a limit's window; false when there is a mistake that leaves none.
func (c *compiler) window(o *object, l *Limit, w, own windowFields) bool {
	s := &l.Window
	s.Kind, s.Lateness = windows.Sliding, c.set.MaxLateness
	if w.kind != nil {
		kind, ok := c.windowKind(w.kind)
		if !ok {
			return false
		}
		s.Kind = kind
	}
	c.inapplicable(s.Kind, own)
	if w.per == nil {
		if !o.has("per") {
			c.fail(o.node, "as in per: 1m, or per: day with window: calendar", "a limit needs `per`")
		}
		return false
	}
	if s.Kind == windows.Calendar {
		return c.calendar(l, w, own)
	}
	per, ok := c.per(w.per, s.Kind)
	if !ok {
		return false
	}
	s.Per, l.PerMin, l.PerMax = per, per, per
	switch s.Kind {
	case windows.Tumbling:
		c.tumbling(s, w)
	case windows.Sliding:
		c.sliding(l, w, own)
	}
	return true
}

// per reads a window's length.
func (c *compiler) per(n *yaml.Node, kind windows.Kind) (event.Micros, bool) {
	if s, _ := c.text(n, "per"); units[s] != 0 {
		c.fail(n, fmt.Sprintf("write window: calendar with it, or %s", inDuration[s]),
			"per: a civil %s has no fixed length, and a %s window needs one", s, kindName(kind))
		return 0, false
	}
	return c.duration(n, "per")
}

// inDuration says how to write a civil unit for the other windows.
var inDuration = map[string]string{
	"hour": "per: 1h", "day": "per: 1d", "week": "per: 7d", "month": "per: 30d", "year": "per: 365d",
}

func (c *compiler) tumbling(s *windows.Spec, w windowFields) {
	if w.offset != nil {
		if offset, ok := c.duration(w.offset, "offset"); ok {
			if offset >= s.Per {
				c.fail(w.offset, "windows repeat every "+formatDuration(s.Per), "offset is shorter than per")
			}
			s.Offset = offset
		}
	}
	const week = 7 * event.Day
	if s.Per%week == 0 && s.Offset == 0 {
		c.warn(w.per, "offset: 4d starts them on Mondays, and window: calendar with per: week follows a timezone",
			"%s tumbling windows start on Thursdays at 00:00 UTC", formatDuration(s.Per))
	}
}

func (c *compiler) sliding(l *Limit, w, own windowFields) {
	s := &l.Window
	s.Exact = l.Rule.Count == CountEvents && l.Limit > 0 && l.Limit <= windows.ExactLimit*event.One
	if w.resolution == nil {
		return
	}
	resolution, ok := c.duration(w.resolution, "resolution")
	switch {
	case !ok:
	case resolution > s.Per:
		c.fail(w.resolution, "", "resolution is at most per, %s", formatDuration(s.Per))
	case !s.Exact:
		s.Resolution = resolution
	case own.resolution != nil && l.Limit > 0:
		c.warn(own.resolution, "", "resolution changes nothing here: up to a limit of %d, a sliding window is exact", windows.ExactLimit)
	}
}

// inapplicable reports fields that the window does not have.
func (c *compiler) inapplicable(kind windows.Kind, own windowFields) {
	for _, f := range []struct {
		name string
		node *yaml.Node
		of   windows.Kind
	}{
		{"offset", own.offset, windows.Tumbling},
		{"resolution", own.resolution, windows.Sliding},
		{"timezone", own.timezone, windows.Calendar},
		{"week_starts", own.weekStarts, windows.Calendar},
	} {
		if f.node != nil && f.of != kind {
			c.fail(f.node, "it belongs to window: "+kindName(f.of), "a %s window has no `%s`", kindName(kind), f.name)
		}
	}
}

// windowFields are the YAML values that choose a window; nil when they are not there.
type windowFields struct {
	per, kind, offset, resolution, timezone, weekStarts *yaml.Node
}

func windowFieldsOf(o *object) windowFields {
	return windowFields{
		per: o.get("per"), kind: o.get("window"), offset: o.get("offset"),
		resolution: o.get("resolution"), timezone: o.get("timezone"), weekStarts: o.get("week_starts"),
	}
}

// or fills what is not there from what surrounds it.
func (w windowFields) or(outer windowFields) windowFields {
	return windowFields{
		per: cmp.Or(w.per, outer.per), kind: cmp.Or(w.kind, outer.kind), offset: cmp.Or(w.offset, outer.offset),
		resolution: cmp.Or(w.resolution, outer.resolution), timezone: cmp.Or(w.timezone, outer.timezone),
		weekStarts: cmp.Or(w.weekStarts, outer.weekStarts),
	}
}

func (c *compiler) windowKind(n *yaml.Node) (windows.Kind, bool) {
	if n.Value == "session" || n.Value == "bucket" {
		c.fail(n, "", "%s", notBuiltMessage("window: "+n.Value))
		return 0, false
	}
	switch word, _ := c.word(n, "window", "tumbling", "calendar", "sliding"); word {
	case "tumbling":
		return windows.Tumbling, true
	case "calendar":
		return windows.Calendar, true
	case "sliding":
		return windows.Sliding, true
	}
	return 0, false
}

func kindName(k windows.Kind) string {
	return [...]string{windows.Tumbling: "tumbling", windows.Calendar: "calendar", windows.Sliding: "sliding"}[k]
}
