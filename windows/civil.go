package windows

import (
	"time"

	"github.com/tallygate/tallygate/event"
)

const (
	hourSeconds = 3600
	daySeconds  = 24 * hourSeconds
	farthest    = 26 * hourSeconds // no zone is as far from UTC
)

// civilWindow is the civil unit of the zone that holds at. All edges are whole seconds.
//
// A day, week, month or year starts at the first instant whose civil date is in it, and ends
// where a later one starts: where clocks go back past midnight, what is repeated belongs to
// the day that had begun already, and a date that was skipped has no window. With an Offset a
// date begins when clocks show so much, or more.
func civilWindow(s *Spec, at event.Micros) (start, end event.Micros) {
	sec := int64(floorDiv(at, event.Second))
	var from, to int64
	if s.Unit == Hour {
		from, to = hourWindow(s.Zone, sec)
	} else {
		off, _ := offsetAt(s.Zone, sec)
		unit := unitOf(s, floorDiv(sec+off-int64(s.Offset/event.Second), daySeconds))
		from, to = unitStart(s, unit), unitStart(s, unit+1)
		for to <= sec {
			unit++
			from, to = to, unitStart(s, unit+1)
		}
	}
	return event.Micros(from) * event.Second, event.Micros(to) * event.Second
}

// unitOf numbers the unit that holds a day, which is counted from 1970-01-01.
func unitOf(s *Spec, day int64) int64 {
	if s.Unit == Day {
		return day
	}
	if s.Unit == Week {
		return floorDiv(day-firstWeek(s), 7)
	}
	date := time.Unix(day*daySeconds, 0).UTC()
	unit := int64(date.Year())
	if s.Unit == Month {
		unit = unit*12 + int64(date.Month()) - 1
	}
	if firstDay(s, unit) > day {
		unit--
	}
	return unit
}

// firstDay is the day on which a month or year begins.
func firstDay(s *Spec, unit int64) int64 {
	year, month, day := int(unit), max(s.FirstMonth, time.January), max(s.FirstDay, 1)
	if s.Unit == Month {
		year, month = 0, time.January+time.Month(unit)
	}
	if day > 28 {
		day = min(day, time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day())
	}
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() / daySeconds
}

// unitStart is the first instant whose civil date is in the unit or after it.
func unitStart(s *Spec, unit int64) int64 {
	day := unit
	switch s.Unit {
	case Month, Year:
		day = firstDay(s, unit)
	case Week:
		day = unit*7 + firstWeek(s)
	}
	return firstAt(s.Zone, day*daySeconds+int64(s.Offset/event.Second))
}

// firstWeek is the first day at or after 1970-01-01, a Thursday, that starts a week.
func firstWeek(s *Spec) int64 {
	return (int64(s.WeekStarts) - int64(time.Thursday) + 7) % 7
}

// firstAt is the first instant at which the zone's clocks show local, given as if it were
// UTC, or more.
func firstAt(zone *time.Location, local int64) int64 {
	sec := local - farthest
	for {
		off, until := offsetAt(zone, sec)
		if first := max(sec, local-off); first < until {
			return first
		}
		sec = until
	}
}

// hourWindow: an hour lasts while clocks show it and do not go back. So an hour that is
// repeated is two windows, also where only half of it is repeated.
func hourWindow(zone *time.Location, sec int64) (from, to int64) {
	from = nextHour(zone, sec-hourSeconds) // an hour is at most this long: it began after that
	for {
		to = nextHour(zone, from)
		if to > sec {
			return from, to
		}
		from = to
	}
}

// nextHour is the first instant after sec at which an hour starts.
func nextHour(zone *time.Location, sec int64) int64 {
	off, until := offsetAt(zone, sec)
	for {
		hour := floorDiv(sec+off, hourSeconds)
		if next := (hour+1)*hourSeconds - off; next < until {
			return next
		}
		was := off
		sec = until
		off, until = offsetAt(zone, sec)
		if off < was || floorDiv(sec+off, hourSeconds) != hour {
			return sec
		}
	}
}

// offsetAt is the zone's offset from UTC at sec, and a moment after sec until which it stays
// the same at least.
//
// Only that end of time.Time's ZoneBounds is used, and with care: beyond the zone's last
// listed transition the bounds are those of the year at best, the start may be too early,
// and on 31 December of a leap year the end is already past.
func offsetAt(zone *time.Location, sec int64) (off, until int64) {
	t := time.Unix(sec, 0).In(zone)
	_, o := t.Zone()
	_, end := t.ZoneBounds()
	switch {
	case end.IsZero():
		until = 1 << 62
	case end.Unix() > sec:
		until = end.Unix()
	default:
		until = time.Date(t.UTC().Year()+1, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
	}
	return int64(o), until
}
