// Package rulewords puts compiled rules into words: what they count, for whom, against which limit, and what
// follows.
package rulewords

import (
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/rules"
)

// Mode names a rule's way to act: enforce, shadow, strict or instance.
func Mode(r *rules.Rule) string {
	switch {
	case r.Mode.String() == "shadow":
		return "shadow"
	case r.Scope == rules.ScopeInstance:
		return "instance"
	case r.Strict != nil:
		return "strict"
	}
	return r.Mode.String()
}

// Limit is a limit in words: at most 100 events per uid in any 1m.
func Limit(l *rules.Limit) string {
	var b strings.Builder
	b.WriteString(most(l) + " " + what(l.Rule) + " per " + Key(l.Rule))
	b.WriteString(" " + rules.Over(l))
	if l.Burst > 0 {
		b.WriteString(", and at most " + l.Burst.String() + " at once")
	}
	var more []string
	if n := len(l.Tiers); n > 0 {
		more = append(more, words.Plural(n, "tier"))
	}
	if l.Told != nil {
		more = append(more, "or what attrs."+l.Told.Attr+" says")
	}
	if n := len(l.Overrides()); n > 0 {
		more = append(more, words.Plural(n, "key")+" with limits of their own")
	}
	if l.Tries {
		more = append(more, "tried beside: "+l.Candidate.String())
	}
	if len(more) > 0 {
		b.WriteString(" (" + strings.Join(more, ", ") + ")")
	}
	return b.String()
}

// Limits are those of a rule, in words.
func Limits(r *rules.Rule) (list []string) {
	for _, l := range r.Limits {
		if !l.Shadow {
			list = append(list, Limit(l))
		}
	}
	return list
}

func most(l *rules.Limit) string {
	if l.Burst > 0 {
		return l.Limit.String()
	}
	return "at most " + l.Limit.String()
}

// what a rule counts.
func what(r *rules.Rule) string {
	switch {
	case r.Count == rules.CountDistinct && r.Attr != "":
		return "different attrs." + r.Attr
	case r.Count == rules.CountDistinct:
		return "different " + r.Field
	case r.Count == rules.CountSum && r.Attr != "":
		return "of attrs." + r.Attr
	case r.Count == rules.CountSum:
		return "of the cost"
	}
	if r.WeighsOutcomes() {
		return "events by the weights of their outcomes"
	}
	return "events"
}

// Key names a rule's dimensions: uid and attrs.campaign.
func Key(r *rules.Rule) string {
	if r.Shape == nil || len(r.Shape.Dims) == 0 {
		return "process"
	}
	return strings.Join(r.Shape.Dims, " and ")
}

// Then names the consequence of a limit that is exceeded.
func Then(r *rules.Rule) string {
	t := &r.Then
	if r.Silent() {
		return "a request that would be over gets no permit"
	}
	if t.None {
		return "a notice only"
	}
	var b strings.Builder
	b.WriteString(t.Action.String())
	switch {
	case t.UntilReset:
		b.WriteString(" until the count is below the limit")
	case t.Escalates:
		b.WriteString(" " + steps(t.Steps) + ", longer each time")
	case len(t.Steps) > 0 && t.Steps[0] >= event.Forever:
		b.WriteString(" forever")
	case len(t.Steps) > 0:
		b.WriteString(" for " + rules.FormatDuration(t.Steps[0]))
	}
	if t.Extend {
		b.WriteString(", and longer with every further event")
	}
	if apis := r.APIs; len(apis) > 0 {
		b.WriteString("; it covers " + strings.Join(apis, ", "))
	}
	return b.String()
}

func steps(list []event.Micros) string {
	var out []string
	for _, d := range list {
		out = append(out, rules.FormatDuration(d))
	}
	return strings.Join(out, ", ")
}

// Window returns a limit's longest window; 0 of what is under way.
func Window(l *rules.Limit) time.Duration { return time.Duration(l.PerMax) * time.Microsecond }
