package event

import (
	"errors"
	"fmt"
	"time"
)

// The moments that RFC 3339 can write: the years 0 to 9999.
const (
	MinTime Micros = -62_167_219_200_000_000
	MaxTime Micros = 253_402_300_799_999_999
)

// Forever is the end of what has none: the last day of MaxTime's year. Programs that know of no such thing read it as
// a time, in any time zone, and keep it.
const Forever = MaxTime + 1 - Day

// ErrTime says that a text is no RFC 3339 time.
var ErrTime = errors.New("event: not an RFC 3339 time")

// ParseMicros reads an RFC 3339 time, with any number of fraction digits (cut, towards the past, to
// microseconds) and any offset. The leap second 23:59:60 UTC is the second after it.
func ParseMicros(text string) (Micros, error) {
	m, ok := parseRFC3339(text)
	if !ok {
		return 0, fmt.Errorf("%w such as 2026-11-21T10:00:00.123Z: %.40q", ErrTime, text)
	}
	return m, nil
}

// AppendTo appends the moment as RFC 3339 in UTC, without trailing zeros of the fraction:
// 2026-11-21T10:00:00Z, 2026-11-21T10:00:01.5Z. NoTime appends nothing; what lies outside
// MinTime and MaxTime is written as the nearer of them.
func (m Micros) AppendTo(dst []byte) []byte {
	if m == NoTime {
		return dst
	}
	return min(max(m, MinTime), MaxTime).Time().AppendFormat(dst, time.RFC3339Nano)
}

// AppendText is AppendTo as an [encoding.TextAppender]; it never fails.
func (m Micros) AppendText(dst []byte) ([]byte, error) { return m.AppendTo(dst), nil }

// String returns what AppendTo appends; "" for NoTime.
func (m Micros) String() string { return string(m.AppendTo(nil)) }

// MarshalJSON returns the moment as a JSON string, NoTime as null.
func (m Micros) MarshalJSON() ([]byte, error) {
	if m == NoTime {
		return []byte("null"), nil
	}
	return append(m.AppendTo([]byte{'"'}), '"'), nil
}

// UnmarshalJSON reads a JSON string as ParseMicros does; null is NoTime.
func (m *Micros) UnmarshalJSON(data []byte) error {
	text := string(data)
	if text == "null" {
		*m = NoTime
		return nil
	}
	if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' {
		return fmt.Errorf("%w: %.40s", ErrTime, text)
	}
	x, err := ParseMicros(text[1 : len(text)-1])
	if err == nil {
		*m = x
	}
	return err
}

// parseRFC3339 is four times as fast as time.Parse, and stricter: it takes RFC 3339's grammar only.
func parseRFC3339(s string) (Micros, bool) {
	if len(s) < len("2006-01-02T15:04:05Z") || s[4] != '-' || s[7] != '-' ||
		s[10]|0x20 != 't' || s[13] != ':' || s[16] != ':' {
		return 0, false
	}
	century, ok0 := two(s, 0)
	year, ok1 := two(s, 2)
	month, ok2 := two(s, 5)
	day, ok3 := two(s, 8)
	hour, ok4 := two(s, 11)
	minute, ok5 := two(s, 14)
	second, ok6 := two(s, 17)
	year += century * 100
	if !(ok0 && ok1 && ok2 && ok3 && ok4 && ok5 && ok6) || month < 1 || month > 12 ||
		day < 1 || day > daysIn(year, month) || hour > 23 || minute > 59 || second > 60 {
		return 0, false
	}
	micros, s, ok := fraction(s[19:])
	if !ok {
		return 0, false
	}
	offset, ok := zone(s)
	if !ok {
		return 0, false
	}
	minutes := (int64(daysSinceEpoch(year, month, day))*24+int64(hour))*60 + int64(minute) - int64(offset)
	if second == 60 && mod(minutes, 24*60) != 24*60-1 {
		return 0, false
	}
	m := Micros(minutes)*Minute + Micros(second)*Second + Micros(micros)
	return m, m >= MinTime && m <= MaxTime
}

func two(s string, i int) (int, bool) {
	a, b := s[i]-'0', s[i+1]-'0'
	return int(a)*10 + int(b), a <= 9 && b <= 9
}

// fraction reads ".123", if s starts with one, as microseconds.
func fraction(s string) (micros int, rest string, ok bool) {
	if s == "" || s[0] != '.' {
		return 0, s, true
	}
	n := digits(s[1:])
	for k := range 6 {
		micros *= 10
		if k < n {
			micros += int(s[1+k] - '0')
		}
	}
	return micros, s[1+n:], n > 0
}

// zone reads "Z" or "+08:00" as minutes east of UTC.
func zone(s string) (minutes int, ok bool) {
	if len(s) == 1 {
		return 0, s[0]|0x20 == 'z'
	}
	if len(s) != len("+08:00") || s[3] != ':' || (s[0] != '+' && s[0] != '-') {
		return 0, false
	}
	h, ok1 := two(s, 1)
	m, ok2 := two(s, 4)
	if !ok1 || !ok2 || h > 23 || m > 59 {
		return 0, false
	}
	if s[0] == '-' {
		return -h*60 - m, true
	}
	return h*60 + m, true
}

func daysIn(year, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// daysSinceEpoch counts from 1970-01-01 to a civil date (the proleptic Gregorian calendar), by
// Howard Hinnant's days_from_civil: years begin in March, eras of 400 years are all alike.
func daysSinceEpoch(year, month, day int) int {
	if month <= 2 {
		year--
	}
	era := (year + 400) / 400 // year >= -1
	inEra := year + 400 - era*400
	inYear := (153*((month+9)%12)+2)/5 + day - 1
	return (era-1)*146097 + inEra*365 + inEra/4 - inEra/100 + inYear - 719468
}

func mod(a, n int64) int64 { return (a%n + n) % n }
