package scalar

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/tallygate/tallygate/event"
)

// MaxSpan bounds every duration in a rule file.
const MaxSpan = 3660 * event.Day

// Forever is the word for a block that has no end. Its span is event.Forever, which is beyond MaxSpan.
const Forever = "forever"

// durationUnits are Prometheus' units, in the order in which a duration may name them.
var durationUnits = []struct {
	name string
	span event.Micros
}{
	{"y", 365 * event.Day},
	{"w", 7 * event.Day},
	{"d", event.Day},
	{"h", event.Hour},
	{"m", event.Minute},
	{"s", event.Second},
	{"ms", event.Millisecond},
}

var (
	errDurationRange = errors.New("the duration is too long")
	errDurationOrder = errors.New("units go from long to short (y w d h m s ms), each once, as in 1h30m")
	errDurationUnit  = errors.New("a duration is whole numbers with units (ms s m h d w y), as in 30s or 1h30m")
)

// ParseDuration reads a Prometheus duration, such as 30s, 1h30m or 7d: whole numbers with
// the units y (365d), w, d, h, m, s and ms, from long to short. 0 needs no unit.
func ParseDuration(s string) (event.Micros, error) {
	if s == "0" {
		return 0, nil
	}
	var sum event.Micros
	units := durationUnits
	for rest := s; rest != ""; {
		number := rest[:Digits(rest)]
		rest = rest[len(number):]
		unit := rest[:letters(rest)]
		rest = rest[len(unit):]
		if number == "" || unit == "" {
			return 0, fmt.Errorf("%q is not a duration: %w", s, errDurationUnit)
		}
		i := unitIndex(units, unit)
		if i < 0 {
			if unitIndex(durationUnits, unit) < 0 {
				return 0, fmt.Errorf("%q is not a duration: %w", s, errDurationUnit)
			}
			return 0, fmt.Errorf("%q is not a duration: %w", s, errDurationOrder)
		}
		n, ok := multiple(number, units[i].span)
		if !ok || sum > math.MaxInt64-n {
			return 0, fmt.Errorf("%q: %w", s, errDurationRange)
		}
		sum, units = sum+n, units[i+1:]
	}
	if s == "" {
		return 0, errDurationUnit
	}
	return sum, nil
}

// FormatDuration is ParseDuration's inverse, cut to milliseconds.
func FormatDuration(d event.Micros) string {
	if d >= event.Forever {
		return Forever
	}
	var b strings.Builder
	for _, u := range durationUnits {
		if u.name == "y" || u.name == "w" && d%u.span != 0 {
			continue // years and odd weeks read badly: 366d, not 1y1d
		}
		if n := d / u.span; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.span
		}
	}
	if b.Len() == 0 {
		return "0s"
	}
	return b.String()
}

// inOrder writes a duration whose units are out of order from long to short; "" when that is not all that
// is wrong with it.
func inOrder(s string) string {
	var sum event.Micros
	for rest := s; rest != ""; {
		part := rest[:Digits(rest)+letters(rest[Digits(rest):])]
		d, err := ParseDuration(part)
		if part == "" || err != nil || sum > math.MaxInt64-d {
			return ""
		}
		sum, rest = sum+d, rest[len(part):]
	}
	if _, err := ParseDuration(s); err == nil {
		return ""
	}
	return FormatDuration(sum)
}

// Digits counts the digits that a text begins with.
func Digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}

func letters(s string) int {
	i := 0
	for i < len(s) && (s[i] < '0' || s[i] > '9') {
		i++
	}
	return i
}

func unitIndex(units []struct {
	name string
	span event.Micros
}, name string) int {
	for i := range units {
		if units[i].name == name {
			return i
		}
	}
	return -1
}

// multiple returns number times span, unless that is too much.
func multiple(number string, span event.Micros) (event.Micros, bool) {
	var n event.Micros
	for i := range len(number) {
		if n > (math.MaxInt64-9)/10 {
			return 0, false
		}
		n = n*10 + event.Micros(number[i]-'0')
	}
	if n > math.MaxInt64/span {
		return 0, false
	}
	return n * span, true
}
