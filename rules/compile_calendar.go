package rules

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
	"github.com/tallygate/tallygate/windows"
)

// units are the civil units that calendar windows have.
var units = map[string]windows.Unit{
	"hour": windows.Hour, "day": windows.Day, "week": windows.Week, "month": windows.Month, "year": windows.Year,
}

var unitNames = []string{"hour", "day", "week", "month", "year"}

// spans are the shortest and the longest that a civil unit is, with an hour taken away and
// two hours added by what zones do to their clocks.
var spans = map[windows.Unit][2]event.Micros{
	windows.Hour:  {event.Hour, 2 * event.Hour},
	windows.Day:   {23 * event.Hour, 26 * event.Hour},
	windows.Week:  {7*event.Day - event.Hour, 7*event.Day + 2*event.Hour},
	windows.Month: {28*event.Day - event.Hour, 31*event.Day + 2*event.Hour},
	windows.Year:  {365*event.Day - event.Hour, 366*event.Day + 2*event.Hour},
}

// calendar reads the fields of a calendar window; false when there is a mistake that leaves none.
func (c *limitReader) calendar() bool {
	if !c.needsPer() {
		return false
	}
	l, w, own := c.l, c.w, c.own
	s := &l.Window
	name, ok := c.Text(w.get("per"), "per")
	if !ok {
		return false
	}
	s.Unit = units[name]
	if s.Unit == 0 {
		c.Fail(w.get("per"), unitHint(name), "per: a calendar window has a civil unit (%s), not %q",
			strings.Join(unitNames, ", "), scalar.Shortened(name))
		return false
	}
	l.PerMin, l.PerMax = spans[s.Unit][0], spans[s.Unit][1]
	s.Zone = time.UTC
	if w.get("timezone") != nil {
		if zone := c.zone(w.get("timezone")); zone != nil {
			s.Zone = zone
		}
	}
	dayBegins(c, name)
	if s.Unit != windows.Week && own.get("week_starts") != nil {
		c.Fail(own.get("week_starts"), "it belongs to per: week", "a %s has no `week_starts`", name)
	}
	if s.Unit == windows.Week {
		s.WeekStarts = time.Monday
		if w.get("week_starts") != nil {
			s.WeekStarts = c.weekStarts(w.get("week_starts"))
		}
	}
	anchor(c, name)
	return true
}

// dayBegins reads the time of day at which days begin, and so weeks, months and years.
func dayBegins(c *limitReader, unit string) {
	n := c.w.get("offset")
	if n == nil {
		return
	}
	offset, ok := c.duration(n, "offset")
	switch {
	case !ok:
	case c.l.Window.Unit == windows.Hour && c.own.get("offset") == nil: // it is the rule's, for others of its limits
	case c.l.Window.Unit == windows.Hour:
		c.Fail(n, "it says at which time a day begins, as in offset: 5h", "an hour has no `offset`")
	case offset >= event.Day:
		hint := "as in offset: 5h"
		if c.l.Window.Unit != windows.Day {
			hint = "which day of a " + unit + " is the first says `anchor`, a date"
		}
		c.Fail(n, hint, "offset is shorter than a day: it says at which time a day begins")
	case offset%event.Second != 0:
		c.Fail(n, "as in offset: 5h", "offset is whole seconds")
	default:
		c.l.Window.Offset = offset
	}
}

// anchor reads a date on which one of the periods begins.
func anchor(c *limitReader, unit string) {
	n := c.w.get("anchor")
	if n == nil {
		return
	}
	text, ok := c.Text(n, "anchor")
	if !ok {
		return
	}
	date, err := time.Parse(time.DateOnly, text)
	s := &c.l.Window
	switch {
	case err != nil:
		c.Fail(n, "as in anchor: 2026-01-31; the time of day at which a day begins is `offset`", "anchor: %q is no date", scalar.Shortened(text))
	case s.Unit <= windows.Day && c.own.get("anchor") == nil: // as above
	case s.Unit <= windows.Day:
		article := map[windows.Unit]string{windows.Hour: "an", windows.Day: "a"}[s.Unit]
		c.Fail(n, "the time of day at which a day begins is `offset`, as in offset: 5h", "%s %s has no `anchor`", article, unit)
	case s.Unit == windows.Week && c.own.get("week_starts") != nil:
		c.Fail(n, "leave one of them out", "a week has `anchor` or `week_starts`, not both")
	case s.Unit == windows.Week:
		s.WeekStarts = date.Weekday()
	case s.Unit == windows.Month:
		s.FirstDay = date.Day()
	default:
		s.FirstDay, s.FirstMonth = date.Day(), date.Month()
	}
	if s.FirstDay <= 1 && s.FirstMonth <= time.January { // it is the civil one
		s.FirstDay, s.FirstMonth = 0, 0
	}
}

func calendarHash(w *windows.Spec) string {
	zone := w.Zone.String()
	data, _ := windows.ZoneHash(zone) // the zone was loaded from there
	hash := fmt.Sprintf("calendar %d %d %q %x", w.Unit, w.WeekStarts, zone, data)
	if w.Offset != 0 || w.FirstDay != 0 {
		hash += fmt.Sprintf(" from %d %d %d", w.FirstMonth, w.FirstDay, w.Offset)
	}
	return hash
}

func calendarWords(w *windows.Spec) string {
	for name, unit := range units {
		if unit == w.Unit {
			return "each calendar " + name + " in " + w.Zone.String() + begins(w)
		}
	}
	return ""
}

// begins names the place at which a unit begins that is not the civil one.
func begins(w *windows.Spec) (words string) {
	switch {
	case w.FirstMonth != 0:
		words = fmt.Sprintf(" from %d %s", w.FirstDay, w.FirstMonth)
	case w.FirstDay != 0:
		words = fmt.Sprintf(" from day %d", w.FirstDay)
	}
	if at := time.Duration(w.Offset) * time.Microsecond; at > 0 {
		words += " from " + time.Time{}.Add(at).Format(time.TimeOnly)
	}
	return words
}

func calendarCovers(w, o *windows.Spec) bool {
	switch {
	case w.Zone.String() != o.Zone.String() || w.Offset != o.Offset:
		return false
	case w.Unit == o.Unit:
		return w.WeekStarts == o.WeekStarts && w.FirstDay == o.FirstDay && w.FirstMonth == o.FirstMonth
	case o.Unit == windows.Month:
		return w.Unit == windows.Year && max(w.FirstDay, 1) == max(o.FirstDay, 1)
	}
	return w.Unit > o.Unit && o.Unit != windows.Week
}

func unitHint(per string) string {
	if unit := scalar.Closest(per, unitNames); unit != "" {
		return fmt.Sprintf("did you mean %s?", unit)
	}
	d, err := scalar.ParseDuration(per)
	if err != nil {
		return ""
	}
	for _, name := range unitNames {
		if spans[units[name]][0] <= d && d <= spans[units[name]][1] {
			return fmt.Sprintf("did you mean %s? A fixed length such as %s has window: tumbling or sliding", name, per)
		}
	}
	return "a fixed length has window: tumbling or sliding"
}

func (c *compiler) weekStarts(n *yaml.Node) time.Weekday {
	var names []string
	for day := range 7 {
		names = append(names, strings.ToLower(time.Weekday(day).String()))
	}
	word, _ := c.Word(n, "week_starts", names...)
	for day, name := range names {
		if word == name {
			return time.Weekday(day)
		}
	}
	return time.Monday
}

// zone reads a time zone; nil when there is none of that name.
func (c *compiler) zone(n *yaml.Node) *time.Location {
	name, ok := c.Text(n, "timezone")
	if !ok {
		return nil
	}
	zone := c.zones.Load(name)
	if zone == nil || name == "" {
		c.Fail(n, "a timezone is an IANA name such as Asia/Shanghai or UTC",
			"there is no timezone %q%s", scalar.Shortened(name), c.zones.Meant(name))
		return nil
	}
	if doubt, hint := scalar.ZoneDoubt(name); doubt != "" {
		c.Warn(n, hint, "%s", doubt)
	}
	return zone
}
