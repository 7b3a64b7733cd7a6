package rules

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/event"
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
func (c *compiler) calendar(o *object, l *Limit, w, own windowFields) bool {
	if !c.needsPer(o, w) {
		return false
	}
	s := &l.Window
	name, ok := c.text(w["per"], "per")
	if !ok {
		return false
	}
	s.Unit = units[name]
	if s.Unit == 0 {
		c.fail(w["per"], unitHint(name), "per: a calendar window has a civil unit (%s), not %q",
			strings.Join(unitNames, ", "), shortened(name))
		return false
	}
	l.PerMin, l.PerMax = spans[s.Unit][0], spans[s.Unit][1]
	s.Zone = time.UTC
	if w["timezone"] != nil {
		if zone := c.zone(w["timezone"]); zone != nil {
			s.Zone = zone
		}
	}
	if s.Unit != windows.Week {
		if own["week_starts"] != nil {
			c.fail(own["week_starts"], "it belongs to per: week", "a %s has no `week_starts`", name)
		}
		return true
	}
	s.WeekStarts = time.Monday
	if w["week_starts"] != nil {
		s.WeekStarts = c.weekStarts(w["week_starts"])
	}
	return true
}

func calendarHash(w *windows.Spec) string {
	zone := w.Zone.String()
	data, _ := windows.ZoneHash(zone) // the zone was loaded from there
	return fmt.Sprintf("calendar %d %d %q %x", w.Unit, w.WeekStarts, zone, data)
}

func unitHint(per string) string {
	if unit := closest(per, unitNames); unit != "" {
		return fmt.Sprintf("did you mean %s?", unit)
	}
	d, err := ParseDuration(per)
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
	word, _ := c.word(n, "week_starts", names...)
	for day, name := range names {
		if word == name {
			return time.Weekday(day)
		}
	}
	return time.Monday
}

// zone reads a time zone; nil when there is none of that name.
func (c *compiler) zone(n *yaml.Node) *time.Location {
	name, ok := c.text(n, "timezone")
	if !ok {
		return nil
	}
	zone := c.loadZone(name)
	if zone == nil || name == "" {
		c.fail(n, "a timezone is an IANA name such as Asia/Shanghai or UTC",
			"there is no timezone %q%s", shortened(name), c.zoneMeant(name))
		return nil
	}
	if doubt, hint := zoneDoubt(name); doubt != "" {
		c.warn(n, hint, "%s", doubt)
	}
	return zone
}

// loadZone keeps what it has loaded: finding a zone takes a walk through the database.
func (c *compiler) loadZone(name string) *time.Location {
	zone, known := c.zones[name]
	if !known {
		zone, _ = windows.LoadZone(name)
		c.zones[name] = zone
	}
	return zone
}

// zoneMeant guesses the zone from the spelling, or from the city alone.
func (c *compiler) zoneMeant(name string) string {
	if meant := foreignZone(name); meant != "" {
		return "; did you mean " + meant + "?"
	}
	spelled := []rune(strings.ToLower(strings.TrimSpace(strings.ReplaceAll(name, " ", "_"))))
	for i := range spelled {
		if i == 0 || spelled[i-1] == '/' || spelled[i-1] == '_' {
			spelled[i] = []rune(strings.ToUpper(string(spelled[i])))[0]
		}
	}
	for _, guess := range []string{string(spelled), strings.ToUpper(name)} {
		if len(guess) > 2 && guess != "UTC" && c.loadZone(guess) != nil {
			return fmt.Sprintf("; did you mean %q?", guess)
		}
	}
	for _, known := range commonZones {
		_, city, _ := strings.Cut(known, "/")
		if closest(name, []string{known, city}) != "" {
			return fmt.Sprintf("; did you mean %q?", known)
		}
	}
	return ""
}

// commonZones are what a misspelt zone is compared with.
var commonZones = strings.Fields(`UTC
	Africa/Cairo Africa/Johannesburg Africa/Lagos Africa/Nairobi
	America/Argentina/Buenos_Aires America/Bogota America/Chicago America/Denver America/Lima
	America/Los_Angeles America/Mexico_City America/New_York America/Phoenix America/Santiago
	America/Sao_Paulo America/Toronto America/Vancouver
	Asia/Bangkok Asia/Dhaka Asia/Dubai Asia/Ho_Chi_Minh Asia/Hong_Kong Asia/Istanbul Asia/Jakarta
	Asia/Jerusalem Asia/Karachi Asia/Kolkata Asia/Kuala_Lumpur Asia/Manila Asia/Riyadh Asia/Seoul
	Asia/Shanghai Asia/Singapore Asia/Taipei Asia/Tehran Asia/Tokyo
	Atlantic/Reykjavik Australia/Brisbane Australia/Melbourne Australia/Perth Australia/Sydney
	Europe/Amsterdam Europe/Athens Europe/Berlin Europe/Brussels Europe/Bucharest Europe/Budapest
	Europe/Copenhagen Europe/Dublin Europe/Helsinki Europe/Istanbul Europe/Kyiv Europe/Lisbon
	Europe/London Europe/Madrid Europe/Moscow Europe/Oslo Europe/Paris Europe/Prague Europe/Rome
	Europe/Stockholm Europe/Vienna Europe/Warsaw Europe/Zurich
	Pacific/Auckland Pacific/Honolulu`)
