package rules

import (
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
	"github.com/tallygate/tallygate/rules/when"
	"github.com/tallygate/tallygate/verdict"
)

// strictReader reads what a rule says of requests before their actions.
type strictReader struct{ *ruleReader }

// scope reads who counts by a rule, and whether it is over what is under way: what the other fields may
// say depends on both.
func (c *ruleReader) scope() {
	if n := c.o.Get("scope"); n != nil {
		switch text := n.Value; {
		case n.Kind == yaml.ScalarNode && text != "all" && valueWords["scope"][scalar.Folded(text)] == "" && (event.IsDim(text) || dimensionWords[scalar.Folded(text)] != ""):
			c.Fail(n, "as in key: uid", "what to count by is `key`, not `scope`")
		default:
			if word, _ := c.Word(n, "scope", "all", "instance"); word != "all" {
				c.r.Scope, c.r.MaxKeys = ScopeInstance, defaultKeys
			}
		}
	}
	c.r.underWay = c.o.Get("strict") != nil && strictReader{c}.saysInFlight()
	c.r.Action = verdict.ActBlock
}

// saysInFlight reports whether the rule, or one of its limits, says window: in-flight.
func (c strictReader) saysInFlight() bool {
	says := func(n *yaml.Node) bool { return n != nil && n.Kind == yaml.ScalarNode && n.Value == inFlight }
	if says(c.o.Get("window")) {
		return true
	}
	stacked := c.o.Get("limits")
	if stacked == nil || stacked.Kind != yaml.SequenceNode {
		return false
	}
	for _, limit := range stacked.Content {
		for i := 0; limit.Kind == yaml.MappingNode && i+1 < len(limit.Content); i += 2 {
			if limit.Content[i].Value == "window" && says(limit.Content[i+1]) {
				return true
			}
		}
	}
	return false
}

// strict reads how the permits of a rule are held, and refuses fields that a rule like it can't have.
func (c strictReader) strict() {
	if n := c.o.Get("strict"); n != nil {
		c.permits(n)
	}
	r := c.r
	if r.match.strict = r.Strict != nil; r.match.strict && r.match.when != nil {
		r.match.parts = c.parts(c.o.Get("when"))
	}
	switch {
	case r.Scope == ScopeInstance:
		c.without("scope: instance", "a process decides alone, before the action, and nothing is published",
			"strict", "then", "warn", "refunds", "fuse", "notify")
	case r.underWay:
		c.without("window: in-flight", "it counts permits alone, and no event", "then", "warn", "refunds", "fuse", "notify")
	default:
		c.aggregated()
		return
	}
	if r.underWay {
		c.noKeys()
		if r.Mode == verdict.Shadow {
			c.Warn(c.o.At("mode"), "leave the rule out; with scope: instance it would count in shadow mode, too",
				"with mode: shadow nobody asks for permits, and window: in-flight counts nothing else")
		}
	}
	c.beforeTheOutcome()
}

// aggregated refuses fields that a rule which the aggregator counts by can't have.
func (c strictReader) aggregated() {
	if n := c.o.Get("action"); n != nil && c.r.Strict == nil {
		c.Fail(n, "what a verdict does stands in then: {block: 5m, action: challenge}", "only rules with `strict` or `scope: instance` have `action`")
	}
	c.noKeys()
	if c.r.Strict != nil && c.r.Count == CountDistinct {
		c.Fail(c.o.At("count"), "leave `strict` out, or count the events of a key that has the value, as in key: [uid, attrs.device]",
			"distinct values can't be strict: before the action nobody knows which ones are new")
	}
}

func (c strictReader) noKeys() {
	if n := c.o.Get("keys"); n != nil {
		c.Fail(n, "what to count by is `key`; elsewhere keys are forgotten when they no longer matter", "only rules with `scope: instance` have `keys`")
	}
}

// permits reads `strict`: true, false or a mapping.
func (c strictReader) permits(n *yaml.Node) {
	s := &Strict{Hold: min(defaultHold, c.set.MaxLateness)}
	if c.r.underWay {
		s.Lost = LostReturn
	}
	if n.Kind == yaml.ScalarNode {
		if isFalse(n) {
			c.r.underWay = false
			return
		}
		c.Bool(n, "strict")
		c.r.Strict = s
		c.holdsLongEnough(n)
		return
	}
	c.r.Strict = s
	o, ok := strictPlace.inside(c, c.File, n)
	if ok && !o.Has("hold") {
		c.holdsLongEnough(n)
	}
	if ok && s.Ahead > s.Hold {
		c.Fail(o.At("ahead"), "as in strict: {hold: 30s, ahead: 1s}", "ahead, %s, is longer than hold, %s: such permits would be lost before they are used",
			scalar.FormatDuration(s.Ahead), scalar.FormatDuration(s.Hold))
	}
}

// holdsLongEnough reports a rule that says no `hold`, where max_lateness leaves none.
func (c strictReader) holdsLongEnough(n *yaml.Node) {
	if most := c.set.MaxLateness; most < minHold {
		c.Fail(n, "raise spec.max_lateness: an action includes the way of its event to Kafka", "a permit is held for at least %s, and max_lateness is %s",
			scalar.FormatDuration(minHold), scalar.FormatDuration(most))
	}
}

func (c strictReader) hold(n *yaml.Node) {
	d, ok := c.duration(n, "hold")
	switch most := c.set.MaxLateness; {
	case !ok:
	case d < minHold:
		c.Fail(n, "an action includes the way of its event to Kafka", "hold is at least %s", scalar.FormatDuration(minHold))
	case d > most && c.r.underWay:
		c.Fail(n, "whoever takes longer asks again with the same id, which renews it", "hold is at most max_lateness, %s", scalar.FormatDuration(most))
	case d > most:
		c.Fail(n, "an event that is older counts nowhere; raise spec.max_lateness", "hold is at most max_lateness, %s", scalar.FormatDuration(most))
	default:
		c.r.Strict.Hold, c.holdAt[c.r] = d, n
	}
}

// longHold is told: see longHolds.
const longHold = event.Minute

// longHolds warns of rules that deny for long: when Redis has lost its memory, what it granted may be under way for
// the rule's hold, and it grants nothing before. Right after a reload no other strict rule does.
func (c *compiler) longHolds() {
	var shortest *Rule
	for _, r := range c.set.Strict() {
		if shortest == nil || r.Strict.Hold < shortest.Strict.Hold {
			shortest = r
		}
	}
	for _, r := range c.set.Strict() {
		if n := c.holdAt[r]; n != nil && r.Strict.Hold > max(longHold, shortest.Strict.Hold) {
			hint := "make it as short as the action allows"
			if r.underWay {
				hint += "; whoever takes longer asks again with the same id, which renews the permit"
			}
			c.Warn(n, hint, "when Redis loses its memory, this rule denies for its hold, %s; right after a reload so does %s, whose own is %s",
				scalar.FormatDuration(r.Strict.Hold), shortest.Name, scalar.FormatDuration(shortest.Strict.Hold))
		}
	}
}

func (c strictReader) lost(n *yaml.Node) {
	switch word, ok := c.Word(n, "lost", "count", "return"); {
	case !ok:
	case word == "return":
		c.r.Strict.Lost = LostReturn
	case c.r.underWay:
		c.Fail(n, "leave it out: a permit that is lost is given back after `hold`", "what is under way is not counted for good: in-flight has lost: return")
	}
}

func (c strictReader) ahead(n *yaml.Node) {
	if c.r.underWay {
		c.Fail(n, "leave it out: permits that nobody uses yet would be under way", "window: in-flight has no `ahead`")
		return
	}
	c.spanIf(n, "ahead", &c.r.Strict.Ahead)
}

// without refuses fields that a rule can't have, or that an entry of its limits can't.
func (c strictReader) without(what, why string, names ...string) {
	for _, name := range names {
		if n := c.o.Get(name); n != nil && (name != "refunds" || strings.EqualFold(n.Value, "true")) && !isFalse(n) {
			hint := "leave it out, or write a rule of its own for it: " + why
			if name == "then" {
				hint = "what a request meets is `action`, as in action: throttle"
			}
			c.Fail(n, hint, "a rule with %s has no `%s`", what, name)
		}
	}
	if c.r.Count == CountDistinct {
		c.Fail(c.o.At("count"), "count the events of a key that has the value, as in key: [uid, attrs.device]", "a rule with %s counts no distinct values", what)
	}
}

func isFalse(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool" && strings.EqualFold(n.Value, "false")
}

const noOutcomeYet = "the rule sees a request before its action: its outcome is not known"

// beforeTheOutcome refuses what asks how an action ended where nothing but requests is counted.
func (c strictReader) beforeTheOutcome() {
	if m := c.o.Get("match"); m != nil {
		for i := 0; m.Kind == yaml.MappingNode && i+1 < len(m.Content); i += 2 {
			if m.Content[i].Value == "outcome" {
				c.Fail(m.Content[i], "leave it out, or write a rule without it for what ended, counted by the aggregator", "%s", noOutcomeYet)
			}
		}
	}
	if w := c.r.match.when; w != nil && w.Uses("outcome") {
		c.Fail(c.o.At("when"), "leave it out of `when`", "%s", noOutcomeYet)
	}
}

func (c *ruleReader) ownAction(n *yaml.Node) {
	if n.Value == verdict.ActLog.String() && n.Kind == yaml.ScalarNode {
		c.Fail(n, "with mode: shadow the rule denies nothing", "action: log lets every request in")
		return
	}
	var names []string
	for _, name := range verdict.ActionNames() {
		if name != verdict.ActLog.String() {
			names = append(names, name)
		}
	}
	if word, ok := c.Word(n, "action", names...); ok {
		c.r.Action, _ = verdict.ParseAction(word) // it is one of the names
	}
}

func (c *ruleReader) maxKeys(n *yaml.Node) {
	s, ok := c.Text(n, "keys")
	if !ok {
		return
	}
	d, problem, hint := scalar.ParseNumber(scalar.PlainNumber(s))
	switch {
	case event.IsDim(s) || dimensionWords[scalar.Folded(s)] != "":
		c.Fail(n, "as in key: uid", "what to count by is `key`, not `keys`")
	case problem != "":
		c.Fail(n, hint, "keys: %s", problem)
	case !d.Whole() || d > maxKeys*event.One:
		c.Fail(n, "", "keys is a whole number from 1 to %d, not %s", maxKeys, scalar.Shortened(s))
	default:
		c.r.MaxKeys = int(d / event.One)
	}
}

// warnMemory warns of a rule whose counters may take much of a process' memory.
func (c strictReader) warnMemory() {
	const much, unit = 256 << 20, 1 << 20
	if c.r.Scope != ScopeInstance || len(c.r.Shape.dims()) == 0 {
		return
	}
	size := 0
	for _, l := range c.r.Limits {
		if !l.InFlight {
			size += l.Window.MaxBytes()
		}
	}
	if all := size * c.r.MaxKeys; all > much {
		c.Warn(c.o.At("keys"), "fewer keys, or a window of another kind, such as bucket",
			"the counters of %d keys may take %d MiB in each process", c.r.MaxKeys, all/unit)
	}
}

// parts takes a predicate apart that is to be evaluated before all is known that it asks for.
func (c *compiler) parts(n *yaml.Node) *when.Parts {
	return when.Split(n.Value, named{c.zones, c.lists})
}
