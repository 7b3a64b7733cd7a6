package rules

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/document"
	"github.com/tallygate/tallygate/rules/internal/scalar"
	"github.com/tallygate/tallygate/rules/when"
)

// match reads which events a rule counts.
func (c *ruleReader) match(n *yaml.Node, in *place[*ruleReader]) {
	o, _ := in.objectAnd(c.File, n, func(p document.Pair) bool { return c.attrField(&c.r.match, p) })
	in.read(c, o)
}

// attrField reads a field such as attrs.NAME; false when it is none.
func (c *ruleReader) attrField(m *ruleMatch, p document.Pair) bool {
	name, attr := strings.CutPrefix(p.Key.Value, "attrs.")
	if attr = attr && name != ""; attr {
		c.matchAttr(m, p, name)
	}
	return attr
}

func (c *ruleReader) matchAPI(n *yaml.Node) {
	c.r.match.apis = c.apiWeights(n)
	for _, a := range c.r.match.apis {
		c.r.APIs = append(c.r.APIs, a.pattern)
	}
}

// everyOutcome stands for all outcomes.
const everyOutcome = "*"

// outcomesOf reads which outcomes are meant.
func (c *compiler) outcomesOf(m *ruleMatch, n *yaml.Node) {
	m.outcomes = c.values(n, "outcome")
	if slices.Contains(m.outcomes, everyOutcome) {
		m.outcomes, m.anyOutcome = nil, true
		return
	}
	for _, item := range c.OneOrMore(n, "outcome") {
		wordReader{c}.outcomeWord(item)
	}
}

func (c *ruleReader) matchAttrs(n *yaml.Node) { c.attrsOf(&c.r.match, n) }

func (c *ruleReader) attrsOf(m *ruleMatch, n *yaml.Node) {
	pairs, _ := c.Pairs(n, "attrs")
	for _, p := range pairs {
		c.matchAttr(m, p, p.Key.Value)
	}
}

func (c *ruleReader) matchAttr(m *ruleMatch, p document.Pair, name string) {
	hint := fmt.Sprintf("to match its absence, write when: attrs.%s == nil", name)
	if document.IsNull(p.Value) {
		c.Fail(p.Key, hint, "the attribute %q has no value", name)
		return
	}
	values := c.values(p.Value, "an attribute's value")
	if slices.Contains(values, "") {
		c.Fail(p.Value, hint, "an empty attribute is an absent one")
	}
	wordReader{c.compiler}.attrName(p.Key, name)
	c.knownAttr(p.Key, name)
	for i, item := range c.OneOrMore(p.Value, "an attribute's value") {
		if len(values) > i {
			c.knownValue(item, name, document.ValueText(item))
			wordReader{c.compiler}.attrValue(item, name)
		}
	}
	m.attrs = append(m.attrs, newAttrMatch(name, values))
}

// warnLimited warns of what asks for a limit's denials where there are none.
func warnLimited(c *ruleReader) {
	m, at := &c.r.match, c.o.At("when")
	asks := m.when != nil && m.when.Uses("outcome") && (strings.Contains(at.Value, `"limited"`) || strings.Contains(at.Value, `'limited'`))
	switch {
	case asks && !m.takes(event.OutcomeLimited):
		c.Warn(at, `write match: {…, outcome: "*"}, which takes every outcome`,
			"`when` asks for the outcome limited, and `match` leaves it out: it counts what a limit denied only where it names it")
	case c.r.Strict != nil && len(m.outcomes) == 1 && m.takes(event.OutcomeLimited):
		c.Warn(c.o.At("match"), "leave `strict` out, or name another outcome",
			"what a permit let in never has the outcome limited, so the rule counts nothing that has a permit")
	}
}

// apiWeights reads match.api: a name or pattern, a list of them, or a map of them to weights.
func (c *compiler) apiWeights(n *yaml.Node) []apiWeight {
	if n.Kind != yaml.MappingNode {
		return c.apiList(n, "api")
	}
	pairs, _ := c.Pairs(n, "api")
	if len(n.Content) == 0 {
		c.Fail(n, "", "api is an empty mapping")
	}
	var out []apiWeight
	for _, p := range pairs {
		pattern, ok := c.pattern(p.Key)
		s, isText := c.Text(p.Value, "a weight")
		if !ok || !isText {
			continue
		}
		weight, problem, hint := scalar.ParseNumber(scalar.PlainNumber(s))
		switch {
		case problem != "":
			c.Fail(p.Value, hint, "a weight is a whole number of at least 1: %s", problem)
		case !weight.Whole():
			c.Fail(p.Value, "", "a weight is a whole number of at least 1, not %s", s)
		default:
			out = append(out, apiWeight{pattern, int64(weight / event.One)})
		}
	}
	return out
}

// apiList reads one API or a list of them.
func (c *compiler) apiList(n *yaml.Node, what string) []apiWeight {
	if n.Kind == yaml.MappingNode {
		c.Fail(n, "", "%s is a name, a pattern or a list of them, not a mapping", what)
		return nil
	}
	var out []apiWeight
	given := map[string]bool{}
	for _, item := range c.OneOrMore(n, what) {
		pattern, ok := c.pattern(item)
		switch {
		case !ok:
		case given[pattern]:
			c.Fail(item, "", "%q is given twice", pattern)
		default:
			given[pattern] = true
			out = append(out, apiWeight{pattern, 1})
		}
	}
	return out
}

// pattern reads an API's name or a pattern of names.
func (c *compiler) pattern(n *yaml.Node) (string, bool) {
	s, ok := c.Text(n, "an API")
	if !ok {
		return "", false
	}
	problem, hint := scalar.APIMistake(s)
	switch {
	case s == "":
		c.Fail(n, "", "an API's name is empty")
	case len(s) > event.MaxAPI:
		c.Fail(n, "", "an API's name has at most %d bytes, not %d", event.MaxAPI, len(s))
	case problem != "" && !isOnceAccepted(s):
		c.Fail(n, hint, "%s", problem)
	case problem != "":
		return s, c.Refuse(c.At(n, hint, problem))
	default:
		if problem, hint := scalar.UnlikelyAPI(s); problem != "" {
			c.Warn(n, hint, "%s", problem)
		}
		return s, c.knownAPI(n, s)
	}
	return "", false
}

// values reads one value or several, as the text that events are compared by.
func (c *compiler) values(n *yaml.Node, what string) []string {
	var out []string
	for _, item := range c.OneOrMore(n, what) {
		if _, ok := c.Text(item, what); ok && c.PlainNumber(item, what) {
			out = append(out, document.ValueText(item))
		}
	}
	return out
}

// when compiles a predicate; nil when there is a mistake in it.
func (c *compiler) when(n *yaml.Node) *when.Predicate {
	source, ok := c.Text(n, "when")
	if !ok || c.Ended() != nil {
		return nil
	}
	p, mistakes := when.CompileOver(source, named{c.zones, c.lists}, c.events(), &c.patterns)
	if p != nil && !slices.ContainsFunc(mistakes, func(m when.Mistake) bool { return m.Severity == when.Never }) {
		f, more := when.Analyse(source, c.events())
		if len(mistakes) == 0 || !f.True.Never() { // else the reason was told
			mistakes = append(mistakes, more...)
		}
		c.formulas[n] = f
	}
	for _, m := range mistakes {
		if m.Severity == when.Syntax && n.Style == 0 && c.HasComment(n) {
			m.Hint = "in YAML, a # behind a blank begins a comment: put the predicate into quotes"
		} else if m.Severity == when.Syntax && n.Style == 0 && strings.Count(source, "(") > strings.Count(source, ")") {
			m.Hint = "in YAML, a comma between { } ends a value: put the predicate into quotes"
		}
		e := c.Inside(n, m.At, m.Hint, m.Message)
		switch m.Severity {
		case when.Refused, when.Syntax:
			c.Report(e)
		case when.Doubt:
			c.Doubt(e)
		case when.Never:
			if !c.Refuse(e) {
				p = nil
			}
		}
	}
	return p
}
