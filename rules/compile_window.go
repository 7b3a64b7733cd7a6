package rules

import (
	"cmp"
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/windows"
)

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
	s.Refunds = l.Rule.Refunds && l.Rule.Count != CountDistinct
	c.inapplicable(s.Kind, own)
	c.countable(o, l)
	if s.Kind == windows.Session {
		return c.session(o, l, w, own)
	}
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
		c.sliding(o, l, w, own)
	case windows.Bucket:
		return c.bucket(l, w)
	}
	return true
}

// session reads a session's gap.
func (c *compiler) session(o *object, l *Limit, w, own windowFields) bool {
	if own.per != nil {
		c.fail(own.per, "a session ends `gap` after its last event", "a session window has no `per`")
	}
	if w.gap == nil {
		if !o.has("gap") {
			c.fail(o.node, "as in gap: 30m: events less than that apart are one session", "a session window needs `gap`")
		}
		return false
	}
	gap, ok := c.duration(w.gap, "gap")
	l.Window.Gap, l.PerMin, l.PerMax = gap, gap, gap
	return ok
}

// bucket reads what a bucket has besides its rate. What its level is compared with is the burst.
func (c *compiler) bucket(l *Limit, w windowFields) bool {
	l.Window.Limit = l.Limit
	l.PerMax = maxSpan // an overdrawn bucket takes long to drain
	if w.burst != nil {
		l.Limit = c.number(w.burst, "burst", l.Rule)
	}
	if l.Limit > 0 && l.Limit < event.One {
		c.fail(cmp.Or(w.burst, w.per), "as in burst: 1", "a bucket's burst is at least 1, not %v", l.Limit)
	}
	if !c.debt(l, w.debt) {
		return false
	}
	l.bound()
	return l.Limit > 0
}

var zeroNumber = regexp.MustCompile(`^0+(\.0*)?$`)

// debt reads by how much a bucket may be overdrawn, in bursts.
func (c *compiler) debt(l *Limit, n *yaml.Node) bool {
	if l.Debt = event.One; n == nil {
		return true
	}
	text, ok := c.text(n, "debt")
	if !ok {
		return false
	}
	var problem, hint string
	if l.Debt = 0; !zeroNumber.MatchString(text) {
		if l.Debt, problem, hint = parseNumber(yamlNumber(text)); problem != "" {
			c.fail(n, hint, "debt: %s", problem)
			return false
		}
	}
	if l.Debt.Times(l.Limit) == 0 && !l.Rule.Then.reached() && !l.Rule.Then.None {
		c.fail(n, "as in debt: 1, or at: reached", "debt: %s keeps the bucket's level from exceeding its burst, so that nothing would ever be blocked", text)
		return false
	}
	return true
}

// bound sets how far a bucket's level may go.
func (l *Limit) bound() { l.Window.Most = l.Limit.Plus(l.Debt.Times(l.Limit)) }

// countable reports counts and fields that a window can't have.
func (c *compiler) countable(o *object, l *Limit) {
	s, r := &l.Window, l.Rule
	distinct := r.Count == CountDistinct
	switch kind := kindName(s.Kind); {
	case r.Refunds && (s.Kind == windows.Session || s.Kind == windows.Bucket):
		c.fail(o.node, "use tumbling, calendar or sliding", "a %s window has no refunds", kind)
	case s.Kind == windows.Bucket && distinct:
		c.fail(o.node, "use another window", "a bucket can't count distinct values")
	case s.Kind == windows.Bucket && len(l.Tiers) > 0:
		c.fail(o.get("tiers"), "write a rule for each tier, with `when`", "a bucket has no `tiers`")
	case s.Kind == windows.Bucket && len(l.Warn) > 0:
		c.fail(o.node, "use another window, or a `candidate` with a lower limit", "a bucket has no `warn`")
	}
	s.Distinct = distinct
	s.Estimate = distinct && s.Kind != windows.Sliding && l.largest() > windows.ExactDistinct*event.One
	if s.Estimate {
		c.warn(cmp.Or(o.get("limit"), o.node), "", "above %d distinct values the count is an estimate (HyperLogLog): two of three are within %.1f%%, 19 of 20 within %.1f%%",
			windows.ExactDistinct, 100*windows.SketchError, 200*windows.SketchError)
	}
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

// sliding: the largest live limit that counts are compared with decides between times and panes. A
// candidate does not: it is to change nothing.
func (c *compiler) sliding(o *object, l *Limit, w, own windowFields) {
	s := &l.Window
	s.Exact = l.isExact(l.largestLive())
	if s.Distinct && l.largest() > windows.ExactDistinct*event.One {
		c.fail(cmp.Or(o.get("limit"), o.node), "use window: tumbling or calendar, which estimate greater counts",
			"a sliding window counts up to %d distinct values", windows.ExactDistinct)
	}
	if w.resolution == nil {
		return
	}
	panes := !s.Exact || l.Candidate > 0 && !l.isExact(l.Candidate)
	resolution, ok := c.duration(w.resolution, "resolution")
	switch {
	case !ok:
	case resolution > s.Per:
		c.fail(w.resolution, "leave it out for a sixtieth of per", "resolution is at most per, %s", formatDuration(s.Per))
	case panes && s.Per > windows.MaxPanes*resolution:
		least := (s.Per + windows.MaxPanes*event.Second - 1) / (windows.MaxPanes * event.Second) * event.Second
		c.fail(w.resolution, fmt.Sprintf("write %s or more, or leave it out for a sixtieth of per", formatDuration(least)),
			"resolution: %s has more than %d panes of %s", formatDuration(s.Per), windows.MaxPanes, formatDuration(resolution))
	case !s.Exact:
		s.Resolution, l.panes = resolution, resolution
	default:
		if l.panes = resolution; !panes && own.resolution != nil && l.Limit > 0 {
			c.warn(own.resolution, "", "resolution changes nothing here: up to a limit of %d, a sliding window is exact", windows.ExactLimit)
		}
	}
}

// isExact reports whether times are kept for what is compared with a number.
func (l *Limit) isExact(number event.Decimal) bool {
	return l.Rule.Count != CountSum && l.Limit > 0 && number <= windows.ExactLimit*event.One
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
		{"gap", own.gap, windows.Session},
		{"burst", own.burst, windows.Bucket},
		{"debt", own.debt, windows.Bucket},
	} {
		if f.node != nil && f.of != kind {
			c.fail(f.node, "it belongs to window: "+kindName(f.of), "a %s window has no `%s`", kindName(kind), f.name)
		}
	}
}

// windowFields are the YAML values that choose a window; nil when they are not there.
type windowFields struct {
	per, kind, offset, resolution, timezone, weekStarts, gap, burst, debt *yaml.Node
}

func windowFieldsOf(o *object) windowFields {
	return windowFields{
		per: o.get("per"), kind: o.get("window"), offset: o.get("offset"),
		resolution: o.get("resolution"), timezone: o.get("timezone"), weekStarts: o.get("week_starts"),
		gap: o.get("gap"), burst: o.get("burst"), debt: o.get("debt"),
	}
}

// or fills what is not there from what surrounds it.
func (w windowFields) or(outer windowFields) windowFields {
	return windowFields{
		per: cmp.Or(w.per, outer.per), kind: cmp.Or(w.kind, outer.kind), offset: cmp.Or(w.offset, outer.offset),
		resolution: cmp.Or(w.resolution, outer.resolution), timezone: cmp.Or(w.timezone, outer.timezone),
		weekStarts: cmp.Or(w.weekStarts, outer.weekStarts), gap: cmp.Or(w.gap, outer.gap), burst: cmp.Or(w.burst, outer.burst),
		debt: cmp.Or(w.debt, outer.debt),
	}
}

// windowKinds are the words for windows.
var windowKinds = []string{"tumbling", "calendar", "sliding", "session", "bucket"}

func (c *compiler) windowKind(n *yaml.Node) (windows.Kind, bool) {
	word, ok := c.word(n, "window", windowKinds...)
	for i, kind := range []windows.Kind{windows.Tumbling, windows.Calendar, windows.Sliding, windows.Session, windows.Bucket} {
		if ok && word == windowKinds[i] {
			return kind, true
		}
	}
	return 0, false
}

func kindName(k windows.Kind) string {
	return [...]string{
		windows.Tumbling: "tumbling", windows.Calendar: "calendar", windows.Sliding: "sliding",
		windows.Session: "session", windows.Bucket: "bucket",
	}[k]
}
