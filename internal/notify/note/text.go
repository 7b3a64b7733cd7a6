package note

import (
	"fmt"
	"strings"
	"time"
)

// title returns a Message's title unless a template has another.
func (m *Message) title() string {
	about := m.Rule
	if about != "" {
		about = "rule " + about
	} else if m.Subject != "" {
		about = m.Subject
	}
	if about != "" {
		about = ": " + about
	}
	return headline(m.Kind, m.State, m.Count) + about
}

// headline describes an event in a few words.
func headline(kind Kind, state State, count int) string {
	over := state == Resolved
	switch kind {
	case Hits:
		return either(over, "a rule hits few keys again", "a rule hits many of the active keys")
	case Fuse:
		return "a fuse has blown"
	case Verdict:
		return some(count, "a verdict", "verdicts")
	case RulesRejected:
		return either(over, "the rule file is taken again", "a rule file is rejected")
	case RulesChanged:
		return some(count, "the rules have changed", "changes of the rules")
	case EnforcerStale:
		return either(over, some(count, "an enforcer is in step again", "enforcers are in step again"), some(count, "an enforcer is stale", "enforcers are stale"))
	case EnforcerGone:
		return either(over, some(count, "an enforcer is back, or forgotten", "enforcers are back, or forgotten"), some(count, "an enforcer is gone", "enforcers are gone"))
	case KillSwitch:
		return some(count, "a kill switch was used", "uses of kill switches")
	case Command:
		return some(count, "a command", "commands")
	case Lag:
		return either(over, "counting has caught up", "counting is behind")
	case AggregatorsGone:
		return either(over, "aggregators count again", "nobody counts")
	case Test:
		return "a test"
	}
	return string(kind)
}

func either(over bool, yes, no string) string {
	if over {
		return yes
	}
	return no
}

func some(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// text lists the examples, one a line.
func (m *Message) text() string {
	var b strings.Builder
	for i := range m.Examples {
		b.WriteString(m.Examples[i].Line())
		b.WriteByte('\n')
	}
	if more := m.Count - len(m.Examples); more > 0 {
		fmt.Fprintf(&b, "and %d more, from %s to %s\n", more, Clock(m.First), Clock(m.Last))
	}
	if m.Dropped > 0 {
		fmt.Fprintf(&b, "%d older ones were not told\n", m.Dropped)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Line is an example in one line.
func (e Example) Line() string {
	parts := []string{Clock(e.At)}
	for _, part := range []string{e.Rule, e.Subject, e.KeyText, e.What} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	line := strings.Join(parts, "  ")
	if e.By != "" {
		line += ", by " + e.By
	}
	if e.For != "" {
		line += " for " + e.For
	}
	if e.Reason != "" {
		line += ": " + e.Reason
	}
	return OneLine(line)
}

// Clock is a moment as messages write it: in UTC, to the second.
func Clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// OneLine makes one line of a text: what others wrote must not look like lines of ours.
func OneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' || r == '\u0085' {
			return ' '
		}
		return r
	}, text)
}

// Describe fills in title and text where no template did, and bounds both.
func (m *Message) Describe() {
	if m.Title == "" {
		m.Title = m.title()
	}
	if m.Text == "" {
		m.Text = m.text()
	}
	m.Title, m.Text = Cut(OneLine(m.Title), MaxTitle), Cut(m.Text, MaxText)
}
