package windows_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/windows"
)

// civilDates is a zone as people see it: a clock on the wall that shows dates. It knows neither
// offsets nor transitions.
type civilDates struct {
	zone   *time.Location
	starts map[time.Time]int64 // what was found already, by the date
}

// first is the first second at which the clock shows the date, or a later one.
func (c *civilDates) first(date time.Time) int64 {
	if sec, known := c.starts[date]; known {
		return sec
	}
	midnight := date.Unix()
	// How far the clock is from UTC's around then, and two hours more than that.
	ahead := max(wall(c.zone, midnight-30*3600).Unix()-(midnight-30*3600), wall(c.zone, midnight+30*3600).Unix()-(midnight+30*3600))
	sec := midnight - ahead - 2*3600
	if plain := sec + date.Unix() - wall(c.zone, sec).Unix(); wall(c.zone, plain).Equal(date) && steady(c.zone, plain-30*3600, plain+30*3600) {
		c.starts[date] = plain
		return plain
	}
	sec -= ((sec % 60) + 60) % 60
	for wall(c.zone, sec+60).Before(date) && wall(c.zone, sec).Before(date) {
		sec += 60
	}
	for wall(c.zone, sec).Before(date) {
		sec++
	}
	c.starts[date] = sec
	return sec
}

// steady reports whether nobody touched the clock for a while: it went on by as much as time did. Nobody has
// ever moved it there and back within a day or two.
func steady(zone *time.Location, from, to int64) bool {
	return wall(zone, to).Unix()-wall(zone, from).Unix() == to-from
}

// begins reports whether a unit begins on a date: a month on its last day if it has none of that number.
func begins(s *windows.Spec, date time.Time) bool {
	last := date.AddDate(0, 0, 1).Month() != date.Month()
	first := date.Day() == max(s.FirstDay, 1) || last && date.Day() < s.FirstDay
	switch s.Unit {
	case windows.Week:
		return date.Weekday() == s.WeekStarts
	case windows.Month:
		return first
	case windows.Year:
		return first && date.Month() == max(s.FirstMonth, time.January)
	}
	return true
}

// dateOf is the first date of the unit that a date is in: it turns the leaves back one by one.
func dateOf(s *windows.Spec, shown time.Time) time.Time {
	year, month, day := shown.Date()
	date := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	for !begins(s, date) {
		date = date.AddDate(0, 0, -1)
	}
	return date
}

func next(s *windows.Spec, date time.Time) time.Time {
	for date = date.AddDate(0, 0, 1); !begins(s, date); {
		date = date.AddDate(0, 0, 1)
	}
	return date
}

// window is the unit that has begun last at sec.
func (c *civilDates) window(s *windows.Spec, sec int64) (from, to int64) {
	late := s.Offset.Duration()
	date := dateOf(s, wall(c.zone, sec).Add(-late))
	from = c.first(date.Add(late))
	for {
		date = next(s, date)
		if to = c.first(date.Add(late)); to > sec {
			return from, to
		}
		from = to // clocks went back into a date that had ended, or a date was skipped
	}
}

// hour is the time around sec in which the clock shows one hour and goes on.
func hourAround(zone *time.Location, sec int64) (from, to int64) {
	shown := wall(zone, sec)
	from = sec - shown.Unix() + shown.Truncate(time.Hour).Unix()
	if steady(zone, from-2*3600, from+3*3600) {
		return from, from + 3600
	}
	same := func(a, b int64) bool {
		was, now := wall(zone, a), wall(zone, b)
		return now.After(was) && was.Truncate(time.Hour).Equal(now.Truncate(time.Hour))
	}
	from = sec - ((sec%60)+60)%60
	to = from + 60
	for same(from-60, from) {
		from -= 60
	}
	for same(to-60, to) {
		to += 60
	}
	return from, to
}

// oddZones have days without a midnight, days that were skipped, half-hour steps, clocks that
// go back past midnight, and offsets far from UTC.
var oddZones = []string{
	"UTC", "Asia/Shanghai", "America/New_York", "Europe/Berlin", "Europe/London", "Europe/Dublin", "Pacific/Apia",
	"Pacific/Fakaofo", "Pacific/Kwajalein", "Pacific/Kiritimati", "Pacific/Chatham", "Pacific/Auckland", "Australia/Lord_Howe",
	"Australia/Sydney", "America/Sao_Paulo", "America/Asuncion", "America/Santiago", "America/Havana", "America/St_Johns",
	"America/Toronto", "America/Caracas", "America/Godthab", "America/Scoresbysund", "Asia/Beirut", "Asia/Amman", "Asia/Gaza",
	"Asia/Tehran", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Pyongyang", "Asia/Manila", "Africa/Cairo", "Africa/Casablanca",
	"Africa/Monrovia", "Atlantic/Azores", "Antarctica/Troll", "Antarctica/Casey", "Europe/Moscow", "Europe/Volgograd", "Asia/Jerusalem",
}

// Moments at random, half of them around what a zone's clocks did: the first and last microsecond
// of a unit are tried as well.
func TestCalendarEqualsCivilDates(t *testing.T) {
	t.Parallel()
	cases := testrun.Depth(100_000)
	r := rand.New(rand.NewPCG(20261121, 1))
	var dates []*civilDates
	for _, name := range oddZones {
		dates = append(dates, &civilDates{zone: mustLoad(name), starts: map[time.Time]int64{}})
	}
	met := map[string]int{}
	from, to := utc(1973, 1, 1, 0, 0).Unix(), utc(2105, 1, 1, 0, 0).Unix()
	for i := range cases {
		c := dates[r.IntN(len(dates))]
		sec := from + r.Int64N(to-from)
		if start, _ := time.Unix(sec, 0).In(c.zone).ZoneBounds(); i%2 == 0 && !start.IsZero() && start.Unix() > from {
			sec = start.Unix() + r.Int64N(2*86400) - 86400
		}
		spec := windows.Spec{
			Kind: windows.Calendar, Zone: c.zone, Unit: windows.Hour + windows.Unit(r.IntN(5)), WeekStarts: time.Weekday(r.IntN(7)),
		}
		if i%3 > 0 {
			elsewhere(&spec, r.IntN)
		}
		wantFrom, wantTo := hourAround(c.zone, sec)
		if spec.Unit != windows.Hour {
			wantFrom, wantTo = c.window(&spec, sec)
		}
		note(met, &spec, wantFrom, wantTo)
		moment := event.Micros(sec)*event.Second + event.Micros(r.IntN(1_000_000))
		for _, now := range []event.Micros{moment, event.Micros(wantFrom) * event.Second, event.Micros(wantTo)*event.Second - tick} {
			gotFrom, gotTo := spec.Bounds(nil, now)
			if gotFrom != event.Micros(wantFrom)*event.Second || gotTo != event.Micros(wantTo)*event.Second {
				t.Fatalf("case %d, %v, %+v, at %v: %v to %v, want %v to %v", i, c.zone, spec, now,
					gotFrom, gotTo, time.Unix(wantFrom, 0).UTC(), time.Unix(wantTo, 0).UTC())
			}
		}
	}
	t.Logf("%d cases: %v", cases, met)
	for _, odd := range oddities {
		if met[odd] == 0 && testrun.Deep() {
			t.Errorf("%s was never tried", odd)
		}
	}
}

// elsewhere has a spec's units begin at another time, and on another day.
func elsewhere(s *windows.Spec, roll func(int) int) {
	if s.Unit > windows.Hour {
		s.Offset = []event.Micros{0, 60, 1800, 2 * 3600, 2*3600 + 1800, 5 * 3600, 23*3600 + 1800}[roll(7)] * event.Second
	}
	if s.Unit >= windows.Month {
		s.FirstDay = []int{0, 1, 2, 15, 28, 29, 30, 31}[roll(8)]
	}
	if s.Unit == windows.Year {
		s.FirstMonth = time.Month(roll(13))
	}
}

// Dates on which months and years begin that not all of them have.
func FuzzCalendarThatBeginsElsewhere(f *testing.F) {
	for seed := range uint8(40) {
		f.Add(seed, 1_790_000_000+int64(seed)*10_000_000, seed%4, seed, seed%13, uint32(seed)*2000)
	}
	f.Fuzz(func(t *testing.T, zone uint8, sec int64, unit, day, month uint8, offset uint32) {
		if sec < utc(1973, 1, 1, 0, 0).Unix() || sec > utc(2105, 1, 1, 0, 0).Unix() {
			return
		}
		c := &civilDates{zone: mustLoad(oddZones[int(zone)%len(oddZones)]), starts: map[time.Time]int64{}}
		s := windows.Spec{
			Kind: windows.Calendar, Zone: c.zone, Unit: windows.Day + windows.Unit(unit%4), WeekStarts: time.Weekday(day % 7),
			FirstDay: int(day % 32), FirstMonth: time.Month(month % 13), Offset: event.Micros(offset%1440) * event.Minute, // the oracle looks at the clock each minute
		}
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		wantFrom, wantTo := c.window(&s, sec)
		if from, to := s.Bounds(nil, event.Micros(sec)*event.Second); from != event.Micros(wantFrom)*event.Second || to != event.Micros(wantTo)*event.Second {
			t.Fatalf("%v, %+v at %v: %v to %v, want %v to %v", c.zone, s, time.Unix(sec, 0).UTC(), from, to, time.Unix(wantFrom, 0).UTC(), time.Unix(wantTo, 0).UTC())
		}
	})
}

// oddities list the mistakes that calendars are prone to.
var oddities = []string{
	"a short day", "a long day", "a midnight that does not exist", "a day behind one that was skipped", "a short hour",
	"a February of 29 days", "a leap year", "a month of 31 days", "a week of another length", "a week that starts on a Sunday",
}

// note counts the oddities of a unit.
func note(met map[string]int, spec *windows.Spec, from, to int64) {
	const hour, day = 3600, 86400
	start, end, length := wall(spec.Zone, from), wall(spec.Zone, to), to-from
	is := map[string]bool{}
	switch spec.Unit {
	case windows.Hour:
		is = map[string]bool{"a short hour": length < hour}
	case windows.Day:
		is = map[string]bool{"a short day": length < day, "a long day": length > day, "a midnight that does not exist": start.Hour() > 0,
			"a day behind one that was skipped": end.Sub(start) > 36*time.Hour}
	case windows.Week:
		is = map[string]bool{"a week of another length": length != 7*day, "a week that starts on a Sunday": start.Weekday() == time.Sunday}
	case windows.Month:
		days := end.Sub(start).Round(24*time.Hour) / (24 * time.Hour)
		is = map[string]bool{"a February of 29 days": start.Month() == time.February && days == 29, "a month of 31 days": days == 31}
	case windows.Year:
		is = map[string]bool{"a leap year": length > 365*day+day/2}
	}
	for what, so := range is {
		if so {
			met[what]++
		}
	}
}
