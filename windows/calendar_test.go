package windows_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/windows"
)

func mustLoad(name string) *time.Location {
	zone, err := windows.LoadZone(name)
	if err != nil {
		panic(err)
	}
	return zone
}

func civil(unit windows.Unit, zone string) windows.Spec {
	return windows.Spec{
		Kind: windows.Calendar, Unit: unit, Zone: mustLoad(zone),
		WeekStarts: time.Monday, Lateness: event.Hour,
	}
}

func TestCalendarDayEndsAtMidnightInShanghai(t *testing.T) {
	c := newCounter(t, civil(windows.Day, "Asia/Shanghai"))
	c.counts(at("2026-11-21T10:00:00+08:00"), 2, 2)
	c.counts(at("2026-11-21T23:59:59.999999+08:00"), 1, 3)
	c.isBelow(3, at("2026-11-22T00:00:00+08:00"))
	c.isSpent(at("2026-11-22T01:00:00+08:00"))
	c.counts(at("2026-11-22T00:00:00+08:00"), 1, 1)
	c.countsEnded(at("2026-11-21T23:59:59.999999+08:00"), 1, 4)
}

func TestCalendarHoldsTheDayBeforeUntilMaxLatenessPastItsEnd(t *testing.T) {
	c := newCounter(t, civil(windows.Day, "Asia/Shanghai"))
	c.counts(at("2026-11-21T10:00:00+08:00"), 1, 1)
	c.counts(at("2026-11-22T00:59:59.999999+08:00"), 1, 1)
	c.countsEnded(at("2026-11-21T00:00:00+08:00"), 1, 2)
	c.tooLate(at("2026-11-20T23:59:59.999999+08:00"))
	c.counts(at("2026-11-22T01:00:00+08:00"), 1, 2)
	c.tooLate(at("2026-11-21T23:59:59.999999+08:00"))
}

// Half an hour may be shorter than what is before it, and longer than what is after it.
func TestCalendarHoldsTheHourBeforeUntilItsLengthPastItsEnd(t *testing.T) {
	spec := civil(windows.Hour, "Australia/Lord_Howe")
	spec.Lateness = 2 * event.Hour
	c := newCounter(t, spec)
	c.counts(at("2025-10-05T02:40:00+11:00"), 1, 1) // 02:00 was skipped, 02:30 to 03:00 is the hour
	c.counts(at("2025-10-05T03:29:59+11:00"), 1, 1)
	c.countsEnded(at("2025-10-05T02:30:00+11:00"), 1, 2)
	c.counts(at("2025-10-05T03:30:00+11:00"), 1, 2)
	c.tooLate(at("2025-10-05T02:30:00+11:00"))
}

// windowsOf are the windows from one moment to another, as the zone's clocks show them.
func windowsOf(spec windows.Spec, from, to string) []string {
	var got []string
	for now := at(from); now < at(to); {
		start, end := spec.Bounds(nil, now)
		got = append(got, fmt.Sprintf("%s %v",
			start.Time().In(spec.Zone).Format("01-02 15:04 -07:00"), (end-start).Duration()))
		now = end
	}
	return got
}

func TestCalendar(t *testing.T) {
	for _, tt := range []struct {
		name     string
		unit     windows.Unit
		zone     string
		from, to string
		want     []string
	}{
		{
			"a day of 23 hours and one of 25", windows.Day, "Europe/Berlin",
			"2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z",
			[]string{"03-28 00:00 +01:00 24h0m0s", "03-29 00:00 +01:00 23h0m0s", "03-30 00:00 +02:00 24h0m0s"},
		}, {
			"a day of 25 hours", windows.Day, "Europe/Berlin",
			"2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z",
			[]string{"10-24 00:00 +02:00 24h0m0s", "10-25 00:00 +02:00 25h0m0s", "10-26 00:00 +01:00 24h0m0s"},
		}, {
			"an hour that is repeated is two", windows.Hour, "Europe/Berlin",
			"2026-10-25T00:00:00Z", "2026-10-25T03:00:00Z",
			[]string{"10-25 02:00 +02:00 1h0m0s", "10-25 02:00 +01:00 1h0m0s", "10-25 03:00 +01:00 1h0m0s"},
		}, {
			"half an hour that is repeated is one of two", windows.Hour, "Australia/Lord_Howe",
			"2025-04-05T14:30:00Z", "2025-04-05T16:00:00Z",
			[]string{"04-06 01:00 +11:00 1h0m0s", "04-06 01:30 +10:30 30m0s", "04-06 02:00 +10:30 1h0m0s"},
		}, {
			"half an hour that is skipped", windows.Hour, "Australia/Lord_Howe",
			"2025-10-04T14:30:00Z", "2025-10-04T16:30:00Z",
			[]string{"10-05 01:00 +10:30 1h0m0s", "10-05 02:30 +11:00 30m0s", "10-05 03:00 +11:00 1h0m0s"},
		}, {
			"hours of a zone with half an hour", windows.Hour, "Asia/Kolkata",
			"2026-01-01T00:00:00Z", "2026-01-01T01:30:00Z",
			[]string{"01-01 05:00 +05:30 1h0m0s", "01-01 06:00 +05:30 1h0m0s"},
		}, {
			"a day that was skipped has no window", windows.Day, "Pacific/Apia",
			"2011-12-29T22:00:00Z", "2011-12-31T22:00:00Z",
			[]string{"12-29 00:00 -10:00 24h0m0s", "12-31 00:00 +14:00 24h0m0s", "01-01 00:00 +14:00 24h0m0s"},
		}, {
			"a midnight that does not exist in Sao Paulo", windows.Day, "America/Sao_Paulo",
			"2018-11-03T12:00:00Z", "2018-11-05T12:00:00Z",
			[]string{"11-03 00:00 -03:00 24h0m0s", "11-04 01:00 -02:00 23h0m0s", "11-05 00:00 -02:00 24h0m0s"},
		}, {
			"a midnight that does not exist in Beirut", windows.Day, "Asia/Beirut",
			"2022-03-26T12:00:00Z", "2022-03-27T12:00:00Z",
			[]string{"03-26 00:00 +02:00 24h0m0s", "03-27 01:00 +03:00 23h0m0s"},
		}, {
			"a midnight that does not exist in Cairo", windows.Day, "Africa/Cairo",
			"2023-04-27T12:00:00Z", "2023-04-28T12:00:00Z",
			[]string{"04-27 00:00 +02:00 24h0m0s", "04-28 01:00 +03:00 23h0m0s"},
		}, {
			"clocks that go back from 00:01 into a day that has ended", windows.Day, "America/St_Johns",
			"2010-11-06T12:00:00Z", "2010-11-08T12:00:00Z",
			[]string{"11-06 00:00 -02:30 24h0m0s", "11-07 00:00 -02:30 25h0m0s", "11-08 00:00 -03:30 24h0m0s"},
		}, {
			"a day that is repeated is one", windows.Day, "Pacific/Kwajalein",
			"1969-09-29T00:00:00Z", "1969-10-02T00:00:00Z",
			[]string{"09-29 00:00 +11:00 24h0m0s", "09-30 00:00 +11:00 47h0m0s", "10-01 00:00 -12:00 24h0m0s"},
		}, {
			"weeks start on Mondays", windows.Week, "Asia/Shanghai",
			"2026-11-21T00:00:00Z", "2026-11-29T00:00:00Z",
			[]string{"11-16 00:00 +08:00 168h0m0s", "11-23 00:00 +08:00 168h0m0s"},
		}, {
			"months", windows.Month, "UTC",
			"2024-01-31T23:59:59.999999Z", "2024-03-01T00:00:00Z",
			[]string{"01-01 00:00 +00:00 744h0m0s", "02-01 00:00 +00:00 696h0m0s"},
		}, {
			"years", windows.Year, "America/New_York",
			"2024-06-01T00:00:00Z", "2025-06-01T00:00:00Z",
			[]string{"01-01 00:00 -05:00 8784h0m0s", "01-01 00:00 -05:00 8760h0m0s"},
		}, {
			"the year 9999", windows.Month, "America/New_York",
			"9999-11-20T00:00:00Z", "9999-12-20T00:00:00Z",
			[]string{"11-01 00:00 -04:00 721h0m0s", "12-01 00:00 -05:00 744h0m0s"},
		}, {
			"before 1970", windows.Year, "UTC",
			"0004-06-01T00:00:00Z", "0005-06-01T00:00:00Z",
			[]string{"01-01 00:00 +00:00 8784h0m0s", "01-01 00:00 +00:00 8760h0m0s"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := windowsOf(civil(tt.unit, tt.zone), tt.from, tt.to); !slices.Equal(got, tt.want) {
				t.Errorf("got\n%q, want\n%q", got, tt.want)
			}
		})
	}
}

func TestCalendarWeeksStartWhereTheySay(t *testing.T) {
	spec := civil(windows.Week, "America/New_York")
	for spec.WeekStarts = range time.Saturday + 1 {
		from, to := spec.Bounds(nil, at("2026-11-21T10:00:00Z"))
		if got := from.Time().In(spec.Zone); got.Weekday() != spec.WeekStarts || got.Hour() != 0 || to-from != 7*event.Day {
			t.Errorf("a week that starts on %v starts at %v", spec.WeekStarts, got)
		}
	}
}

// Every window of every place and unit, at both of its ends.
func TestCalendarEqualsAClockOnTheWall(t *testing.T) {
	t.Parallel()
	for _, p := range loadPlaces() {
		for weekStarts, almanac := range p.almanacs {
			spec := windows.Spec{Kind: windows.Calendar, Zone: p.zone, WeekStarts: time.Weekday(weekStarts)}
			for spec.Unit = windows.Hour; spec.Unit <= windows.Year; spec.Unit++ {
				sameWindows(t, spec, almanac[spec.Unit])
			}
		}
	}
}

// Clocks that once showed a city's own noon went by seconds; whole days came twice.
func TestCalendarEqualsAClockOnTheWallLongAgo(t *testing.T) {
	for zone, odd := range map[string]string{
		"America/Juneau":    "1867-10-19T00:00:00Z",
		"Pacific/Kwajalein": "1969-09-30T12:00:00Z",
		"Africa/Monrovia":   "1972-01-07T00:44:30Z",
		"Asia/Manila":       "1844-12-31T16:00:00Z",
		"Asia/Shanghai":     "1900-12-31T15:54:17Z",
	} {
		spec := civil(windows.Hour, zone)
		sec := int64(at(odd) / event.Second)
		almanac := watch(spec.Zone, spec.WeekStarts, sec-2*86400, sec+3*86400, 1, 1)
		for _, spec.Unit = range []windows.Unit{windows.Hour, windows.Day} {
			sameWindows(t, spec, almanac[spec.Unit])
		}
	}
}

func sameWindows(t *testing.T, spec windows.Spec, starts []int64) {
	t.Helper()
	if len(starts) < 3 {
		t.Fatalf("%v, unit %d: %d windows only", spec.Zone, spec.Unit, len(starts))
	}
	for i, start := range starts[1 : len(starts)-1] { // the first one was seen when it had begun
		want := [2]event.Micros{event.Micros(start) * event.Second, event.Micros(starts[i+2]) * event.Second}
		for _, now := range []event.Micros{want[0], (want[0] + want[1]) / 2, want[1] - tick} {
			from, to := spec.Bounds(nil, now)
			if from != want[0] || to != want[1] {
				t.Fatalf("%v, unit %d, at %v: %v to %v, want %v to %v", spec.Zone, spec.Unit, now.Time().In(spec.Zone),
					from.Time(), to.Time(), want[0].Time(), want[1].Time())
			}
		}
	}
}
