package scalar

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"github.com/tallygate/tallygate/event"
)

// durationWords are units that people write, in lower case, and what they are here.
var durationWords = Words("s s", "sec s", "secs s", "second s", "seconds s", "m m", "mn m", "min m", "mins m", "minute m", "minutes m", "h h", "hr h", "hrs h", "hour h",
	"hours h", "d d", "day d", "days d", "w w", "wk w", "week w", "weeks w", "y y", "yr y", "year y", "years y", "ms ms", "msec ms", "millis ms", "millisecond ms", "milliseconds ms")

// wholeDurations are words that stand for a duration.
var wholeDurations = Words("minute 1m", "minutely 1m", "hour 1h", "hourly 1h", "day 1d", "daily 1d", "week 7d", "weekly 7d", "month 30d", "monthly 30d", "year 365d", "yearly 365d")

var (
	durationPart = regexp.MustCompile(`^(\d+(?:[.,]\d+)?)([A-Za-zµ]*)`)
	isoDuration  = regexp.MustCompile(`^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?$`)
)

// DurationHint guesses what was meant by a duration that does not parse.
func DurationHint(s string) string {
	plain := strings.NewReplacer(" ", "", ",", "", "and", "", "_", "").Replace(strings.TrimSpace(s))
	if strings.Contains(s, ",") && !strings.Contains(s, ", ") {
		plain = strings.ReplaceAll(strings.ReplaceAll(s, " ", ""), ",", ".")
	}
	lower := strings.ToLower(plain)
	if sorted := inOrder(lower); sorted != "" && !strings.Contains(plain, "M") {
		return fmt.Sprintf("did you mean %s?", sorted)
	}
	if meant := wholeDurations[strings.TrimPrefix(lower, "/")]; meant != "" {
		return "did you mean " + meant + "? Civil time is window: calendar, with per: hour, day, week, month or year"
	}
	if m := isoDuration.FindStringSubmatch(plain); m != nil {
		var b strings.Builder
		for i, unit := range []string{"d", "h", "m", "s"} {
			if m[i+1] != "" {
				b.WriteString(m[i+1] + unit)
			}
		}
		return "did you mean " + b.String() + "?"
	}
	if lower != "" && Digits(lower) == len(lower) {
		return fmt.Sprintf("did you mean %ss?", lower)
	}
	return partsHint(plain)
}

// partsHint adds up numbers with units, also fractions and units that have other names here.
func partsHint(s string) string {
	if m := durationPart.FindStringSubmatch(s); m != nil && m[0] == s && Digits(m[1]) == len(m[1]) && durationWords[strings.ToLower(m[2])] != "" && m[2] != "M" {
		return "did you mean " + m[1] + durationWords[strings.ToLower(m[2])] + "?"
	}
	sum := new(big.Rat)
	for rest := s; rest != ""; {
		m := durationPart.FindStringSubmatch(rest)
		if m == nil {
			return ""
		}
		rest = rest[len(m[0]):]
		lower := strings.ToLower(m[2])
		switch {
		case m[2] == "M" && m[0] == s:
			return fmt.Sprintf("a minute is %sm; a month is civil time: write per: month with window: calendar, or per: 30d", m[1])
		case lower == "mo" || lower == "month" || lower == "months":
			return "a month is civil time: write per: month with window: calendar, or per: 30d"
		case lower == "us" || lower == "µs" || lower == "ns":
			return "the shortest is a millisecond: 1ms"
		}
		unit := unitIndex(durationUnits, durationWords[lower])
		number, ok := new(big.Rat).SetString(strings.ReplaceAll(m[1], ",", "."))
		if unit < 0 || !ok || len(m[1]) > 20 {
			return ""
		}
		sum.Add(sum, number.Mul(number, new(big.Rat).SetInt64(int64(durationUnits[unit].span))))
	}
	sum.Quo(sum, new(big.Rat).SetInt64(int64(event.Millisecond)))
	if !sum.IsInt() || sum.Sign() == 0 || !sum.Num().IsInt64() || sum.Num().Int64() > int64(MaxSpan/event.Millisecond) {
		return ""
	}
	return "did you mean " + FormatDuration(event.Micros(sum.Num().Int64())*event.Millisecond) + "?"
}
