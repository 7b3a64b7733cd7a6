package event

import (
	"math"
	"math/bits"
	"time"
)

// Micros is a moment, or a span, in whole microseconds; a moment counts since the Unix epoch.
type Micros int64

// NoTime is the absent moment.
const NoTime Micros = math.MinInt64

// Units of Micros.
const (
	Millisecond Micros = 1000
	Second             = 1000 * Millisecond
	Minute             = 60 * Second
	Hour               = 60 * Minute
	Day                = 24 * Hour
)

// FromTime cuts t to whole microseconds, from MinTime to MaxTime.
func FromTime(t time.Time) Micros {
	switch s := t.Unix(); { // microseconds may overflow
	case s < int64(MinTime/Second):
		return MinTime
	case s > int64(MaxTime/Second):
		return MaxTime
	}
	return Micros(t.UnixMicro())
}

// Clamp returns the nearest moment that RFC 3339 can write; NoTime stays. What comes from outside is clamped, so
// that no sum of moments and spans overflows.
func (m Micros) Clamp() Micros {
	if m == NoTime {
		return m
	}
	return min(max(m, MinTime), MaxTime)
}

// FromDuration cuts d to whole microseconds.
func FromDuration(d time.Duration) Micros { return Micros(d.Microseconds()) }

// Time returns the moment in UTC.
func (m Micros) Time() time.Time { return time.UnixMicro(int64(m)).UTC() }

// Duration returns the span; it saturates at time.Duration's bounds.
func (m Micros) Duration() time.Duration {
	if m > math.MaxInt64/1000 {
		return math.MaxInt64
	}
	if m < math.MinInt64/1000 {
		return math.MinInt64
	}
	return time.Duration(m) * time.Microsecond
}

// Decimal is a number in millionths. Its arithmetic saturates at ±MaxDecimal.
type Decimal int64

// One is 1; MaxDecimal bounds every Decimal.
const (
	One        Decimal = 1_000_000
	MaxDecimal Decimal = math.MaxInt64
)

// Plus returns d+x, saturating.
func (d Decimal) Plus(x Decimal) Decimal {
	s := d + x
	if (s > d) == (x > 0) || x == 0 {
		return s
	}
	if x > 0 {
		return MaxDecimal
	}
	return -MaxDecimal
}

// Times returns d·x cut to millionths, saturating.
func (d Decimal) Times(x Decimal) Decimal {
	neg := (d < 0) != (x < 0)
	hi, lo := bits.Mul64(d.abs(), x.abs())
	if hi >= uint64(One) {
		return signed(uint64(MaxDecimal), neg)
	}
	q, _ := bits.Div64(hi, lo, uint64(One))
	return signed(min(q, uint64(MaxDecimal)), neg)
}

// TimesInt returns d·n, saturating.
func (d Decimal) TimesInt(n int64) Decimal {
	neg := (d < 0) != (n < 0)
	hi, lo := bits.Mul64(d.abs(), Decimal(n).abs())
	if hi > 0 {
		lo = uint64(MaxDecimal)
	}
	return signed(min(lo, uint64(MaxDecimal)), neg)
}

// Whole reports whether d is a whole number.
func (d Decimal) Whole() bool { return d%One == 0 }

func (d Decimal) abs() uint64 {
	if d < 0 {
		return -uint64(d)
	}
	return uint64(d)
}

func signed(u uint64, neg bool) Decimal {
	if neg {
		return -Decimal(u)
	}
	return Decimal(u)
}
