package rules

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
	"github.com/tallygate/tallygate/verdict"
)

// duration reads a positive Prometheus duration.
func (c *compiler) duration(n *yaml.Node, what string) (event.Micros, bool) {
	s, ok := c.Text(n, what)
	if !ok {
		return 0, false
	}
	d, err := scalar.ParseDuration(s)
	switch {
	case err != nil:
		c.Fail(n, scalar.DurationHint(s), "%s: %v", what, err)
	case d == 0:
		c.Fail(n, "", "%s must be longer than zero", what)
	case d > scalar.MaxSpan:
		c.Fail(n, "", "%s is too long: at most %s", what, scalar.FormatDuration(scalar.MaxSpan))
	default:
		return d, true
	}
	return 0, false
}

var validName = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// name reads the name of a set, a rule or a limit.
func (c *compiler) name(n *yaml.Node, what string) (string, bool) {
	if n == nil {
		return "", false
	}
	s, ok := c.Text(n, what)
	if !ok {
		return "", false
	}
	if !validName.MatchString(s) {
		c.Fail(n, nameHint(s), "%s has 1 to 64 of a-z, 0-9 and `-`, not %q", what, scalar.Shortened(s))
		return "", false
	}
	return s, true
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

func nameHint(s string) string {
	if proposal := notInName.ReplaceAllString(strings.ToLower(s), "-"); validName.MatchString(proposal) && proposal != "-" {
		return "did you mean " + proposal + "?"
	}
	return ""
}

// mode reads enforce or shadow.
func (c *compiler) mode(n *yaml.Node) verdict.Mode {
	if word, _ := c.Word(n, "mode", "enforce", "shadow"); word == "shadow" {
		return verdict.Shadow
	}
	return verdict.Enforce
}

// percentage reads a share such as 5% or 12.5%, of at most 100%, in millionths.
func (c *compiler) percentage(n *yaml.Node, what string) (share event.Decimal, text string, ok bool) {
	const hundred = 100
	text, ok = c.Text(n, what)
	if !ok {
		return 0, "", false
	}
	number, isShare := strings.CutSuffix(text, "%")
	d, problem, _ := scalar.ParseNumber(number)
	if problem == "" && strings.Trim(number, "0123456789.") != "" {
		problem = "a suffix"
	}
	switch {
	case !isShare || problem != "":
		hint := "write it as 80%"
		switch {
		case isShare || problem != "":
		case d >= event.One:
			hint = fmt.Sprintf("did you mean %s%%?", text)
		default:
			hint = fmt.Sprintf("did you mean %v%%?", d*hundred)
		}
		c.Fail(n, hint, "%s: %q is not a percentage", what, scalar.Shortened(text))
	case d > hundred*event.One:
		c.Fail(n, "it is a share, of at most 100%", "%s: %s is more than all", what, text)
	case d%hundred != 0:
		c.Fail(n, "", "%s: %s has more than four digits after the point", what, text)
	default:
		return d / hundred, text, true
	}
	return 0, "", false
}

// number reads a positive number that a rule's counts are compared with.
func (c *compiler) number(n *yaml.Node, what string, r *Rule) event.Decimal {
	return max(parsed(c, n, what, r, scalar.ParseNumber), 0)
}

// limitNumber reads a limit, which may be 0; Unlimited after a mistake.
func limitNumber(c *compiler, n *yaml.Node, what string, r *Rule) event.Decimal {
	return parsed(c, n, what, r, scalar.ParseLimit)
}

func parsed(c *compiler, n *yaml.Node, what string, r *Rule, parse func(string) (event.Decimal, string, string)) event.Decimal {
	s, ok := c.Text(n, what)
	if !ok {
		return Unlimited
	}
	if s == "unlimited" {
		c.Fail(n, "an unlimited tier is written {when: …, unlimited: true}", "%s: a number, not %q", what, s)
		return Unlimited
	}
	if s == suggestWord {
		c.Fail(n, "`tallygate suggest` finds a number in past events, for `limit` and a bucket's `burst`: it reads a file with this word",
			"%s: `suggest` is no number yet", what)
		return Unlimited
	}
	d, problem, hint := parse(scalar.PlainNumber(s))
	switch {
	case problem != "":
		c.Fail(n, hint, "%s: %s", what, problem)
		return Unlimited
	case r.Count != CountSum && !d.Whole():
		c.Fail(n, "only the limit of a sum may be a fraction", "%s: events are counted in whole numbers, not %s", what, s)
		return Unlimited
	}
	return d
}

// spanIf sets a span to a duration, unless that is a mistake.
func (c *compiler) spanIf(n *yaml.Node, what string, span *event.Micros) {
	if d, ok := c.duration(n, what); ok {
		*span = d
	}
}

func (c *compiler) recentCount(n *yaml.Node) {
	if s, ok := c.Text(n, "count"); ok {
		count, err := strconv.Atoi(scalar.PlainNumber(s))
		if err != nil || count < 0 || count > maxRecentIDs {
			c.Fail(n, "", "count is a whole number from 0 to %d, not %q", maxRecentIDs, scalar.Shortened(s))
		}
		c.set.RecentIDs = count
	}
}
