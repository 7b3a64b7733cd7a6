package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// Finding is one thing that can be wrong: a row of the table.
type Finding struct {
	Name     string // stable
	Link     string // of the chain, which it breaks; "": none
	Banner   bool   // the console tells it above the chain
	Check    string // of the doctor, which tells it; "": only aggregators know, whom the doctor does not ask
	Kind     string // of notifications about it; "": none
	Says     string // what is wrong, in a sentence without numbers
	Do       string // in lower case, without a full stop, since it may be a command
	Runbook  string // the section of docs/runbooks.md; of a finding that alerts the alert's name, too
	Page     string // of the console about it; "" is none
	Severity string // of its alert: critical or warning; "": another finding's alert fires, or none
	Over     time.Duration

	judge func(*Observations) []Fault // nil: only Prometheus knows

	// Of enforcers: what is wrong with one; the sentence about it; and that about several, [1] how many, [2] which.
	beat      func(*presence.Beat) (Level, string)
	one, many string
}

// enforcerGone is the one finding of an enforcer that says nothing any more.
const enforcerGone = "enforcer-gone"

// The severities of alerts.
const (
	Critical = "critical" // users are counted or blocked wrongly now
	Warning  = "warning"  // it can wait for the morning
)

// Fault is a finding that is the case.
type Fault struct {
	*Finding
	Level  Level
	Text   string    // a sentence with numbers, in lower case, without a full stop
	Plain  string    // Text without addresses and what programs said; "": Text is
	Advice string    // what to do, where the finding's Do does not say it
	About  []Subject // what it is about, one by one; none: all of it
	Since  time.Time // zero: unknown
}

// Subject is one of those that a fault is about.
type Subject struct {
	Name   string // of an enforcer or an instance, or a partition
	What   string // is wrong with it
	Reason string // what it says itself
}

// Fix returns the remedy: advice with the numbers of this fault, or else the finding's.
func (f *Fault) Fix() string { return cmp.Or(f.Advice, f.Do) }

// Faults judges one finding.
func (f *Finding) Faults(o *Observations) (all []Fault) {
	switch {
	case f.judge != nil:
		all = f.judge(o)
	case f.beat != nil:
		all = f.enforcers(o)
	}
	for i := range all {
		all[i].Finding = f
	}
	return all
}

// enforcers makes one fault of all enforcers that have it.
func (f *Finding) enforcers(o *Observations) []Fault {
	var is Fault
	var list []string
	for i := range o.Enforcers.Value {
		b := &o.Enforcers.Value[i]
		level, what := f.of(o, b)
		if level == OK {
			continue
		}
		is.Level = is.Level.Worse(level)
		is.About = append(is.About, Subject{b.Name, what, b.Error})
		list = append(list, fmt.Sprintf("%s (%s)", b.Name, what))
		if !b.Enabled && !b.OffSince.IsZero() && (is.Since.IsZero() || b.OffSince.Before(is.Since)) {
			is.Since = b.OffSince
		}
	}
	if len(list) == 0 {
		return nil
	}
	is.Text = fmt.Sprintf(f.many, words.Plural(len(list), "enforcer"), Some(list))
	return []Fault{is}
}

// of judges one enforcer by one finding. One that is gone has no other finding, and not this one if it has begun again.
func (f *Finding) of(o *Observations, b *presence.Beat) (Level, string) {
	if b.Gone() != (f.Name == enforcerGone) || b.Gone() && again(o, b) {
		return OK, ""
	}
	return f.beat(b)
}

// again reports whether another enforcer has begun under the name of one that is gone.
func again(o *Observations, gone *presence.Beat) bool {
	return slices.ContainsFunc(o.Enforcers.Value, func(b presence.Beat) bool {
		return b.Name == gone.Name && !b.Gone() && !b.Started.Before(gone.Seen)
	})
}

// when is the level if something is the case.
func when(is bool, level Level) Level {
	if is {
		return level
	}
	return OK
}

// Some lists the first few of many.
func Some[T any](all []T) string {
	const few = 5
	var parts []string
	for i, x := range all {
		if i == few {
			parts = append(parts, fmt.Sprintf("and %d more", len(all)-few))
			break
		}
		parts = append(parts, fmt.Sprint(x))
	}
	return strings.Join(parts, ", ")
}

// Seconds is a span that a program tells as a number.
func Seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

// span is a length of time in words of two units at most.
func span(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", max(0, d.Seconds()*1000))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours())/24)
}

// partitions lists some.
func partitions(all []int32) string {
	if len(all) == 1 {
		return fmt.Sprintf("partition %d", all[0])
	}
	return "partitions " + Some(all)
}

// short is a text's first line, without what would fill the page.
func short(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	const most = 240
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

// sentence makes one of a text of the table.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return words.Ended(strings.ToUpper(text[:1]) + text[1:])
}
