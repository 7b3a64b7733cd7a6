package windows_test

import (
	"sort"
	"sync"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/windows"
)

// edges are the moments at which units started, found by watching a clock on the wall: this
// knows nothing of offsets and transitions.
type edges map[windows.Unit][]int64

// places are zones, and moments at which their clocks did something odd.
var places = []struct {
	zone string
	odd  time.Time // almanacs begin in December two years before, events a year later
}{
	{"UTC", utc(1970, 1, 1, 0, 0)},
	{"Asia/Shanghai", utc(2026, 11, 21, 16, 0)},
	{"America/Sao_Paulo", utc(2018, 11, 4, 3, 0)},     // a midnight that did not exist
	{"Asia/Beirut", utc(2022, 3, 26, 22, 0)},          // the same
	{"Africa/Cairo", utc(2023, 10, 26, 21, 0)},        // at midnight, clocks went back to 23:00
	{"Pacific/Apia", utc(2011, 12, 30, 10, 0)},        // a day that did not exist
	{"Pacific/Kwajalein", utc(1993, 8, 21, 12, 0)},    // the same
	{"Australia/Lord_Howe", utc(2025, 4, 5, 15, 0)},   // half an hour back
	{"Australia/Lord_Howe", utc(2025, 10, 4, 15, 30)}, // and forth
	{"America/St_Johns", utc(2010, 11, 7, 2, 31)},     // at 00:01, back into the day before
	{"America/Havana", utc(2024, 11, 3, 5, 0)},        // the first hour of a day, twice
	{"Antarctica/Troll", utc(2025, 10, 26, 1, 0)},     // two hours back
	{"Europe/Berlin", utc(2032, 12, 31, 0, 0)},        // of a leap year, beyond the listed transitions
	{"America/New_York", utc(9997, 11, 2, 6, 0)},
}

func utc(year int, month time.Month, day, hour, minute int) time.Time {
	return time.Date(year, month, day, hour, minute, 0, 0, time.UTC)
}

// place is the scene of calendar stories. Its zone and almanacs are made once.
type place struct {
	zone     *time.Location
	odd      time.Time
	almanacs [2]edges // by the day on which weeks start, Sunday or Monday
}

var loadPlaces = sync.OnceValue(func() (loaded []place) {
	for _, p := range places {
		zone, err := windows.LoadZone(p.zone)
		if err != nil {
			panic(err)
		}
		from := time.Date(p.odd.Year()-2, time.December, 15, 0, 0, 0, 0, time.UTC).Unix()
		to := time.Date(p.odd.Year()+2, time.January, 15, 0, 0, 0, 0, time.UTC).Unix()
		loaded = append(loaded, place{zone, p.odd, [2]edges{
			watch(zone, time.Sunday, from, to, 15*60, 60),
			watch(zone, time.Monday, from, to, 15*60, 60),
		}})
	}
	return loaded
})

func (e edges) window(unit windows.Unit) func(event.Micros) (from, to event.Micros) {
	starts := e[unit]
	return func(at event.Micros) (from, to event.Micros) {
		i := sort.Search(len(starts), func(i int) bool { return event.Micros(starts[i])*event.Second > at })
		return event.Micros(starts[i-1]) * event.Second, event.Micros(starts[i]) * event.Second
	}
}

// watch looks at the wall every step seconds, and every fine seconds where the clock was set
// in between.
func watch(zone *time.Location, weekStarts time.Weekday, sec, end, step, fine int64) edges {
	found := edges{}
	var greatest labels
	was := wall(zone, sec)
	look := func(sec int64, now time.Time) {
		if now.Before(was) || !now.Truncate(time.Hour).Equal(was.Truncate(time.Hour)) {
			found[windows.Hour] = append(found[windows.Hour], sec)
		}
		was = now
		for unit, label := range labelsOf(now, weekStarts) {
			if label > greatest[unit] {
				greatest[unit] = label
				found[windows.Unit(unit)] = append(found[windows.Unit(unit)], sec)
			}
		}
	}
	for now := was; sec < end; sec += step {
		next := wall(zone, sec+step)
		if next.Sub(now) == time.Duration(step)*time.Second {
			look(sec, now)
		} else {
			for s := sec; s < sec+step; s += fine {
				look(s, wall(zone, s))
			}
		}
		now = next
	}
	return found
}

// wall returns a clock's display, as if it were UTC.
func wall(zone *time.Location, sec int64) time.Time {
	t := time.Unix(sec, 0).In(zone)
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	return time.Date(year, month, day, hour, minute, second, 0, time.UTC)
}

// labels name the day, week, month and year that a clock shows, each greater than the last.
type labels [windows.Year + 1]int

func labelsOf(now time.Time, weekStarts time.Weekday) (l labels) {
	year, month, day := now.Date()
	l[windows.Day] = year*10000 + int(month)*100 + day
	l[windows.Month] = year*100 + int(month)
	l[windows.Year] = year
	sinceStart := (int(now.Weekday()) - int(weekStarts) + 7) % 7
	year, month, day = now.AddDate(0, 0, -sinceStart).Date()
	l[windows.Week] = year*10000 + int(month)*100 + day
	return l
}
