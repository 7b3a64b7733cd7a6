package windows_test

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/windows"
)

const goldenStates = "testdata/states.txt"

// goldenSpecs are all layouts of a state, and what can change how a state is written.
func goldenSpecs() (names []string, specs map[string]windows.Spec) {
	minute, hour := event.Minute, event.Hour
	zone := mustLoad("America/St_Johns")
	specs = map[string]windows.Spec{
		"tumbling":                       {Kind: windows.Tumbling, Per: minute, Offset: 7 * event.Second, Lateness: 40 * event.Second},
		"tumbling strict":                {Kind: windows.Tumbling, Per: minute},
		"calendar hour":                  {Kind: windows.Calendar, Unit: windows.Hour, Zone: zone, Lateness: 2 * hour},
		"calendar day":                   {Kind: windows.Calendar, Unit: windows.Day, Zone: zone, Lateness: hour},
		"calendar week":                  {Kind: windows.Calendar, Unit: windows.Week, Zone: zone, WeekStarts: time.Monday, Lateness: hour},
		"calendar month":                 {Kind: windows.Calendar, Unit: windows.Month, Lateness: 40 * 24 * hour},
		"calendar day from five":         {Kind: windows.Calendar, Unit: windows.Day, Zone: zone, Offset: 5 * hour, Lateness: hour},
		"calendar month from the 31st":   {Kind: windows.Calendar, Unit: windows.Month, Zone: zone, FirstDay: 31, Lateness: hour},
		"calendar year from 29 February": {Kind: windows.Calendar, Unit: windows.Year, FirstDay: 29, FirstMonth: 2, Offset: hour, Lateness: hour},
		"calendar year":                  {Kind: windows.Calendar, Unit: windows.Year, Zone: zone, Lateness: hour},
		"exact":                          {Kind: windows.Sliding, Per: minute, Exact: true},
		"panes":                          {Kind: windows.Sliding, Per: minute},
		"panes coarse":                   {Kind: windows.Sliding, Per: minute, Resolution: 7 * event.Second},
		"session":                        {Kind: windows.Session, Gap: 20 * event.Second, Lateness: 15 * event.Second},
		"session patient":                {Kind: windows.Session, Gap: 20 * event.Second, Lateness: hour},
		"bucket":                         {Kind: windows.Bucket, Per: minute, Limit: 7 * event.One},
		"bucket with most":               {Kind: windows.Bucket, Per: minute, Limit: 7*event.One + 1, Most: 20 * event.One},
		"hopping":                        {Kind: windows.Hopping, Per: minute, Every: 5 * event.Second, Offset: 2 * event.Second, Lateness: 13 * event.Second},
		"hopping patient":                {Kind: windows.Hopping, Per: minute, Every: 20 * event.Second, Lateness: hour},
		"first":                          {Kind: windows.FromFirst, Per: minute, Lateness: 25 * event.Second},
		"first patient":                  {Kind: windows.FromFirst, Per: minute, Lateness: hour},
	}
	for name, s := range maps.Clone(specs) { // the loop adds to specs
		if s.Refundable() {
			s.Refunds = true
			specs[name+", refunds"] = s
			s.Refunds = false
		}
		if s.Distinct = s.Kind.CountsValues(); s.Distinct {
			specs[name+", distinct"] = s
		}
		if s.Estimate = s.Estimates(); s.Estimate {
			specs[name+", estimate"] = s
		}
	}
	for name, s := range specs {
		if err := s.Validate(); err != nil {
			panic(err)
		}
		names, specs[name] = append(names, name), s
	}
	slices.Sort(names)
	return names, specs
}

// What is on the wire stays as it is: the states that long stories leave behind, and all that the
// counters say on the way, are those that earlier programs gave.
func TestStatesAreWrittenAsEver(t *testing.T) {
	var b strings.Builder
	names, specs := goldenSpecs()
	for _, name := range names {
		spec := specs[name]
		h := sha256.New()
		fmt.Fprintf(&b, "%s: at most %d bytes\n", name, spec.MaxBytes())
		var state []byte
		for i, story := range []struct{ events, pace int }{{2, 40}, {3, 40}, {20, 40}, {150, 40}, {1000, 400}, {3000, 4000}} {
			if story.events == 3000 && !spec.Estimate && !spec.Exact {
				continue // only sketches and tails need as much
			}
			state = goldenStory(h, &spec, rand.New(rand.NewPCG(uint64(i), 7)), story.events, story.pace)
			fmt.Fprintf(&b, "  %4d  %s\n", story.events, shortState(state))
		}
		for _, to := range names {
			if other := specs[to]; other.Kind == spec.Kind && other.Distinct == spec.Distinct && other.Per == spec.Per && spec.Kind == windows.Sliding {
				carried := other.Carry(slices.Clone(state), &spec)
				fmt.Fprintf(&b, "  as %s  %s\n", to, shortState(carried))
			}
		}
		fmt.Fprintf(&b, "  said  %x\n", h.Sum(nil)[:16])
	}
	testrun.Golden(t, goldenStates, b.String()) // lines that exist must not change: these states are in Kafka
}

// goldenStory returns the state that a story leaves, of so many events, pace of them in a window's
// length, and writes all that is said in it to h.
func goldenStory(h hash.Hash, s *windows.Spec, r *rand.Rand, events, pace int) (state []byte) {
	now := at("2010-11-06T21:00:00Z") // in St. John's clocks went back at 00:01 of the next day
	length := max(s.Per, 8*s.Gap, map[windows.Unit]event.Micros{
		windows.Hour: event.Hour, windows.Day: event.Day, windows.Week: 7 * event.Day, windows.Month: 30 * event.Day, windows.Year: 365 * event.Day,
	}[s.Unit])
	say := func(what ...any) { fmt.Fprintln(h, what...) }
	for range events {
		step := event.Micros(r.Int64N(2 * int64(length) / int64(pace)))
		switch what := r.IntN(pace); {
		case what == 0:
			step = length + event.Micros(r.Int64N(int64(length)))
		case what < pace/8:
			step = -event.Micros(r.Int64N(int64(length)))
		case what < pace/6:
			step = 0
		}
		when := now + step
		n := event.Decimal(r.IntN(4)) * event.One / event.Decimal(1+r.IntN(2))
		switch what := r.IntN(pace); {
		case what == 0:
			state = s.Empty(state, r.IntN(2) == 0)
		case what < pace/8 && s.Refunds:
			state = s.Take(state, when, n)
		case what < pace/4:
			var added windows.Added
			state, added = s.Add(state, when, n)
			say(added)
		case s.Distinct:
			var added windows.Added
			state, added = s.AddValue(state, when, r.Uint64()%4096*0x9e3779b97f4a7c15)
			say(added)
		default:
			var added windows.Added
			var spent event.Micros
			state, added, spent = s.AddSpent(state, when, n)
			say(added, spent)
		}
		now = max(now, when)
		from, to := s.Bounds(state, now+step/2)
		say(s.Latest(state), s.Count(state), s.CountAt(state, now+length/3), from, to, s.Spent(state), s.Refunds && s.Holds(state, when-length/2), s.Check(state))
		for _, limit := range []event.Decimal{event.One, 7 * event.One, 40 * event.One} {
			say(s.Below(state, limit))
		}
		if len(state) > 0 && len(state) < 200 {
			say(state)
			broken := slices.Clone(state)
			broken[r.IntN(len(broken))] ^= byte(1 << r.IntN(8))
			say(s.Check(broken), s.Check(state[:r.IntN(len(state))]))
		}
	}
	return state
}

// shortState is a state in hex, or the hash of a long one.
func shortState(state []byte) string {
	if len(state) > 60 {
		return fmt.Sprintf("%d bytes, %x", len(state), sha256.Sum256(state))[:40]
	}
	return fmt.Sprintf("%x", state)
}
