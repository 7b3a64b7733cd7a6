package rules

import (
	"fmt"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

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
	if c.w.get("per") == nil && !c.o.Has("per") {
		c.Fail(c.o.Node, "as in per: 1m, or per: day with window: calendar", "a limit needs `per`")
	}
	return c.w.get("per") != nil
}

// per reads a window's length.
func (c *limitReader) per() (event.Micros, bool) {
	n := c.w.get("per")
	if s, _ := c.Text(n, "per"); units[s] != 0 {
		c.Fail(n, fmt.Sprintf("write window: calendar with it, or %s", inDuration[s]),
			"per: a civil %s has no fixed length, and a %s window needs one", s, c.l.Window.Kind)
		return 0, false
	}
	return c.duration(n, "per")
}

// inDuration rewrites a civil unit for the other windows.
var inDuration = map[string]string{
	"hour": "per: 1h", "day": "per: 1d", "week": "per: 7d", "month": "per: 30d", "year": "per: 365d",
}

func (c *limitReader) tumbling() bool {
	if !c.length() {
		return false
	}
	s, w := &c.l.Window, c.w
	c.offset(s.Per, "per")
	const week = 7 * event.Day
	if s.Per%week == 0 && s.Offset == 0 {
		c.Warn(w.get("per"), "offset: 4d starts them on Mondays, and window: calendar with per: week follows a timezone",
			"%s tumbling windows start on Thursdays at 00:00 UTC", scalar.FormatDuration(s.Per))
	}
	if unit := epochUnit(s.Per); unit != "" && s.Offset == 0 {
		c.Warn(w.get("per"), "for the civil "+unit+" write window: calendar with per: "+unit,
			"%s tumbling windows begin each %s since 1970, and not with a %s", scalar.FormatDuration(s.Per), scalar.FormatDuration(s.Per), unit)
	}
	return true
}

// epochUnit is the civil unit that a length is probably meant for; "" for none.
func epochUnit(per event.Micros) string {
	switch days := per / event.Day; {
	case per%event.Day != 0:
		return ""
	case days >= 29 && days <= 31:
		return "month"
	case days == 365 || days == 366:
		return "year"
	}
	return ""
}

// offset reads by how much windows are shifted that repeat.
func (c *limitReader) offset(repeat event.Micros, what string) {
	n := c.w.get("offset")
	if n == nil {
		return
	}
	if offset, ok := c.duration(n, "offset"); ok {
		if offset >= repeat {
			c.Fail(n, "windows repeat every "+scalar.FormatDuration(repeat), "offset is shorter than %s", what)
		}
		c.l.Window.Offset = offset
	}
}

// session reads a session's gap.
func (c *limitReader) session() bool {
	if c.own.get("per") != nil {
		c.Fail(c.own.get("per"), "a session ends `gap` after its last event", "a session window has no `per`")
	}
	if c.w.get("gap") == nil {
		if !c.o.Has("gap") {
			c.Fail(c.o.Node, "as in gap: 30m: events less than that apart are one session", "a session window needs `gap`")
		}
		return false
	}
	gap, ok := c.duration(c.w.get("gap"), "gap")
	l := c.l
	l.Window.Gap, l.PerMin, l.PerMax = gap, gap, gap
	return ok
}
