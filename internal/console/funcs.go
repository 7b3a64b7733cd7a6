package console

import (
	"errors"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/internal/tools/doctor"
)

// funcs are the functions of templates. What they return is for people; a value that is unknown is a dash.
func (s *server) funcs() template.FuncMap {
	all := template.FuncMap{
		"asset":   s.assets.address,
		"live":    liveAttrs,
		"action":  actionField,
		"dict":    dict,
		"list":    func(all ...any) []any { return all },
		"when":    when,
		"clock":   clock,
		"ago":     func(t time.Time) template.HTML { return ago(t, s.Now()) },
		"left":    func(t time.Time) template.HTML { return left(t, s.Now()) },
		"span":    span,
		"seconds": func(v float64) string { return span(time.Duration(v * float64(time.Second))) },
		"num":     number,
		"rate":    rate,
		"size":    size,
		"percent": percent,
		"plural":  plural,
		"ended":   words.Ended,
		"lower":   strings.ToLower,
		"join":    strings.Join,
		"dash":    orDash,

		"spanOf":    func(since time.Time) string { return span(s.Now().Sub(since)) },
		"levelWord": levelWord,
		"finding":   finding,
		"runbook":   runbook,
		"has":       has,
	}
	maps.Copy(all, ruleFuncs())
	return all
}

// levelWord says a light in a word: its colour and shape say the same.
func levelWord(l health.Level) string {
	switch l {
	case health.OK:
		return "ok"
	case health.Warn:
		return "warning"
	case health.Bad:
		return "broken"
	case health.Unknown:
	}
	return "unknown"
}

// finding is the light of a result of the doctor's.
func finding(s doctor.Status) health.Level {
	switch s {
	case doctor.OK:
		return health.OK
	case doctor.Warn:
		return health.Warn
	case doctor.Fail:
		return health.Bad
	case doctor.Skipped:
	}
	return health.Unknown
}

// runbooks is the page with a section for each alert.
const runbooks = "https://github.com/tallygate/tallygate/blob/main/docs/runbooks.md#"

func runbook(alert string) string { return runbooks + strings.ToLower(alert) }

// dict makes a map of names and values, to give a component several.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, errors.New("dict: names and values")
	}
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: %v is no name", pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}

// actionField is the field of a form that says which of the page's actions it is for.
func actionField(name string) template.HTML {
	return template.HTML(`<input type="hidden" name="action" value="` + template.HTMLEscapeString(name) + `">`) //nolint:gosec // escaped
}

const dash = "–"

func orDash(text string) string {
	if text == "" {
		return dash
	}
	return text
}

// timeTag is a moment, shown as text: an age, or a time in UTC, as in sentences, drawings and forms. Its title has it to
// the millisecond, to which a script adds the time in the reader's zone.
func timeTag(t time.Time, text string) template.HTML {
	u := t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s UTC">%s</time>`, //nolint:gosec // digits, and words of this file
		u.Format("2006-01-02T15:04:05.000Z"), u.Format("2006-01-02 15:04:05.000"), template.HTMLEscapeString(text)))
}

// when is a moment with its day.
func when(t time.Time) template.HTML {
	if t.IsZero() {
		return dash
	}
	if event.FromTime(t) >= event.Forever {
		return "forever"
	}
	return timeTag(t, t.UTC().Format("2006-01-02 15:04:05")+" UTC")
}

// clock is a moment of today.
func clock(t time.Time) template.HTML {
	if t.IsZero() {
		return dash
	}
	return timeTag(t, t.UTC().Format("15:04:05")+" UTC")
}

func ago(t, now time.Time) template.HTML {
	if t.IsZero() {
		return dash
	}
	age := now.Sub(t)
	if age < time.Second {
		return timeTag(t, "now")
	}
	return timeTag(t, span(age)+" ago")
}

// left shows the time until a moment.
func left(t, now time.Time) template.HTML {
	if t.IsZero() {
		return dash
	}
	if event.FromTime(t) >= event.Forever {
		return "forever"
	}
	if until := t.Sub(now); until > 0 {
		return timeTag(t, "in "+span(until))
	}
	return timeTag(t, "over")
}

// span is a length of time in its two largest units, at most.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + span(-d)
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", math.Floor(d.Seconds()*10)/10), ".0") + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return two(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < 24*time.Hour:
		return two(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	}
	return two(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
}

func two(n int, unit string, m int, smaller string) string {
	if m == 0 {
		return fmt.Sprintf("%d %s", n, unit)
	}
	return fmt.Sprintf("%d %s %d %s", n, unit, m, smaller)
}

// number is a whole number with thin spaces between thousands.
func number(v any) string {
	var n int64
	switch v := v.(type) {
	case int:
		n = int64(v)
	case int32:
		n = int64(v)
	case int64:
		n = v
	case uint64:
		n = int64(min(v, math.MaxInt64))
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return dash
		}
		n = int64(math.Round(v))
	default:
		return fmt.Sprint(v)
	}
	text := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return sign + text
}

// rate is a number a second, with as many digits as say something.
func rate(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return dash
	case v == 0:
		return "0"
	case math.Abs(v) < 0.1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case math.Abs(v) < 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return number(v)
}

// size is a number of bytes.
func size(v int64) string {
	const unit = 1024
	f := float64(v)
	for _, name := range []string{"B", "KiB", "MiB", "GiB"} {
		if math.Abs(f) < unit {
			if name == "B" || math.Abs(f) >= 10 {
				return fmt.Sprintf("%.0f %s", f, name)
			}
			return fmt.Sprintf("%.1f %s", f, name)
		}
		f /= unit
	}
	return fmt.Sprintf("%.1f TiB", f)
}

// percent is a share of 1.
func percent(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return dash
	}
	if p := v * 100; p != 0 && math.Abs(p) < 10 {
		return fmt.Sprintf("%.1f %%", p)
	}
	return fmt.Sprintf("%.0f %%", v*100)
}

// plural is a number of things: plural 2 "key" is "2 keys".
func plural(n any, what string) string {
	if text := number(n); text != "1" {
		return text + " " + what + "s"
	}
	return "1 " + what
}

// has reports whether a list of texts, of whatever type, has one.
func has(list any, text string) bool {
	switch list := list.(type) {
	case []string:
		return slices.Contains(list, text)
	case []any:
		return slices.Contains(list, any(text))
	}
	return false
}
