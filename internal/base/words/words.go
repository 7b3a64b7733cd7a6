// Package words puts values into words as tables and pages show them: moments, spans, counts, foreign text.
package words

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// Clock is a moment in UTC, to the millisecond.
func Clock(m event.Micros) string {
	return m.Time().Truncate(time.Millisecond).Format("2006-01-02T15:04:05.999Z07:00")
}

// Until names the end of what is in force.
func Until(m event.Micros) string {
	if m >= event.Forever {
		return End(m)
	}
	return "until " + End(m)
}

// End is the end of what is in force, for a column that says that it is one.
func End(m event.Micros) string {
	if m >= event.Forever {
		return "forever"
	}
	return Clock(m)
}

// Cell makes foreign text safe for one line: no control characters, and at most so many characters.
func Cell(text string, most int) string {
	var b strings.Builder
	for n := 0; text != ""; n++ {
		if n == most {
			b.WriteString("…")
			break
		}
		r, size := utf8.DecodeRuneInString(text)
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, `\x%02x`, text[0])
		} else if unicode.IsGraphic(r) {
			b.WriteRune(r)
		} else {
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return b.String()
}

// maxLine is the most characters of a line for a terminal.
const maxLine = 4096

// Lines makes foreign text safe for a terminal: each of its lines as Cell does.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Cell(line, maxLine)
	}
	return strings.Join(lines, "\n")
}

// Ended puts a full stop behind a sentence that ends with no sign of its own, as a hint does: did you mean "limit"?
func Ended(text string) string {
	if strings.HasSuffix(text, "?") || strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}

// OrDash is text, or a dash where there is none.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Plural is a number of things: 1 key, 2 keys.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Span has the two largest units of a span: 6d 23h, 2h 5m, 40s.
func Span(span time.Duration) string {
	var parts []string
	for _, u := range []struct {
		name string
		of   time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		n := span / u.of
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d%s", n, u.name))
		}
		if span -= n * u.of; len(parts) == 2 || len(parts) == 1 && n == 0 {
			break
		}
	}
	return strings.Join(parts, " ")
}

// Action is a verdict's action; in shadow mode it is not carried out.
func Action(v *verdict.Verdict) string {
	if v.Mode == verdict.Shadow {
		return v.Action.String() + " (shadow)"
	}
	return v.Action.String()
}

// Cause is the event that triggered a verdict: its id, if it has one, and its record's place.
func Cause(v *verdict.Verdict) string {
	place := fmt.Sprintf("%d@%d", v.Cause.Partition, v.Cause.Offset)
	if v.Cause.ID == "" {
		return place
	}
	return Cell(v.Cause.ID, 128) + " " + place
}

// Denial says why a strict limit grants no permit, and what helps. It is for a rule that is Denied.
func Denial(e *api.ExplainedRule) string {
	s := e.Strict
	text := fmt.Sprintf("The strict limit %s grants no permit: %s counted and %s under way of %s", e.Rule, s.Level, s.Held, s.Limit)
	if s.ResetsAt != event.NoTime {
		text += ", until " + Clock(s.ResetsAt) + " at the latest"
	}
	if s.Waits() {
		return text + ". Nothing helps but that what is under way ends."
	}
	return text + ". The end of a verdict does not change that: a reset does."
}
