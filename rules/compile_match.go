package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// apiWeight is a name or pattern of APIs, and how much an event of them weighs.
type apiWeight struct {
	pattern string
	weight  int64
}

// match reads which events a rule counts.
func (c *compiler) match(n *yaml.Node, r *Rule) {
	pairs, ok := c.pairs(n, "match")
	if !ok {
		return
	}
	known := []string{"api", "outcome", "attrs"}
	o := &object{node: n, fields: map[string]*yaml.Node{}, spoilt: map[string]bool{}, merged: c.glued[n]}
	for _, p := range pairs {
		switch name, attr := strings.CutPrefix(p.key.Value, "attrs."); {
		case attr && name != "":
			c.matchAttr(p, name, r)
		case !slices.Contains(known, p.key.Value):
			c.unknownField(o, p.key, known)
		case isNull(p.value):
			o.spoilt[p.key.Value] = true
			c.fail(p.key, "", "`%s` has no value", p.key.Value)
		default:
			o.fields[p.key.Value] = p.value
		}
	}
	if !o.has("api") {
		c.fail(n, `to count every API, write api: "*"`, "match needs `api`")
	}
	if n := o.get("api"); n != nil {
		r.match.apis = c.apiWeights(n)
		for _, a := range r.match.apis {
			r.APIs = append(r.APIs, a.pattern)
		}
	}
	if n := o.get("outcome"); n != nil {
		r.match.outcomes = c.values(n, "outcome")
	}
	if n := o.get("attrs"); n != nil {
		pairs, _ := c.pairs(n, "attrs")
		for _, p := range pairs {
			c.matchAttr(p, p.key.Value, r)
		}
	}
}

func (c *compiler) matchAttr(p pair, name string, r *Rule) {
	hint := fmt.Sprintf("to match its absence, write when: attrs.%s == nil", name)
	if isNull(p.value) {
		c.fail(p.key, hint, "the attribute %q has no value", name)
		return
	}
	values := c.values(p.value, "an attribute's value")
	if slices.Contains(values, "") {
		c.fail(p.value, hint, "an empty attribute is an absent one")
	}
	r.match.attrs = append(r.match.attrs, attrMatch{name: name, values: values})
}

// apiWeights reads match.api: a name or pattern, a list of them, or a map of them to weights.
func (c *compiler) apiWeights(n *yaml.Node) []apiWeight {
	if n.Kind != yaml.MappingNode {
		return c.apiList(n, "api")
	}
	pairs, _ := c.pairs(n, "api")
	if len(n.Content) == 0 {
		c.fail(n, "", "api is an empty mapping")
	}
	var out []apiWeight
	for _, p := range pairs {
		pattern, ok := c.pattern(p.key)
		s, isText := c.text(p.value, "a weight")
		if !ok || !isText {
			continue
		}
		weight, problem, hint := scalar.ParseNumber(scalar.PlainNumber(s))
		switch {
		case problem != "":
			c.fail(p.value, hint, "a weight is a whole number of at least 1: %s", problem)
		case !weight.Whole():
			c.fail(p.value, "", "a weight is a whole number of at least 1, not %s", s)
		default:
			out = append(out, apiWeight{pattern, int64(weight / event.One)})
		}
	}
	return out
}

// apiList reads one API or a list of them.
func (c *compiler) apiList(n *yaml.Node, what string) []apiWeight {
	if n.Kind == yaml.MappingNode {
		c.fail(n, "", "%s is a name, a pattern or a list of them, not a mapping", what)
		return nil
	}
	var out []apiWeight
	for _, item := range c.oneOrMore(n, what) {
		pattern, ok := c.pattern(item)
		if ok && slices.Contains(out, apiWeight{pattern, 1}) {
			c.fail(item, "", "%q is given twice", pattern)
			ok = false
		}
		if ok {
			out = append(out, apiWeight{pattern, 1})
		}
	}
	return out
}

// pattern reads an API's name or a pattern of names.
func (c *compiler) pattern(n *yaml.Node) (string, bool) {
	s, ok := c.text(n, "an API")
	if !ok {
		return "", false
	}
	problem, hint := scalar.APIMistake(s)
	switch {
	case s == "":
		c.fail(n, "", "an API's name is empty")
	case len(s) > event.MaxAPI:
		c.fail(n, "", "an API's name has at most %d bytes, not %d", event.MaxAPI, len(s))
	case problem != "" && !isOnceAccepted(s):
		c.fail(n, hint, "%s", problem)
	case problem != "":
		return s, c.refuse(c.errorAt(n, hint, problem))
	default:
		if problem, hint := scalar.UnlikelyAPI(s); problem != "" {
			c.warn(n, hint, "%s", problem)
		}
		return s, true
	}
	return "", false
}

// values reads one value or several, as the text that events are compared by.
func (c *compiler) values(n *yaml.Node, what string) []string {
	var out []string
	for _, item := range c.oneOrMore(n, what) {
		if _, ok := c.text(item, what); ok && c.plainNumber(item, what) {
			out = append(out, valueText(item))
		}
	}
	return out
}

var leadingZero = regexp.MustCompile(`^[-+]?0[0-9_]`)

// plainNumber refuses numbers that YAML reads otherwise than people do.
func (c *compiler) plainNumber(n *yaml.Node, what string) bool {
	tag := n.ShortTag()
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 || tag != "!!int" && tag != "!!float" || !leadingZero.MatchString(n.Value) {
		return true
	}
	as := ""
	if i, err := strconv.ParseInt(n.Value, 0, 64); err == nil && tag == "!!int" {
		as = fmt.Sprintf(", as one in octal: %d", i)
	}
	return c.refuse(c.errorAt(n, "where it is text, put it into quotes: "+strconv.Quote(n.Value), fmt.Sprintf("%s: YAML reads %s as a number%s", what, n.Value, as)))
}

// valueText is the text that event.Value holds for what a YAML scalar says: numbers in their
// shortest form.
func valueText(n *yaml.Node) string {
	switch n.ShortTag() {
	case "!!bool":
		return strings.ToLower(n.Value)
	case "!!int":
		if i, err := strconv.ParseInt(n.Value, 0, 64); err == nil {
			return strconv.FormatInt(i, 10)
		}
	case "!!float":
		number := strings.ReplaceAll(strings.TrimPrefix(n.Value, "+"), "_", "")
		if strings.HasPrefix(number, ".") {
			number = "0" + number
		}
		if d, err := event.ParseDecimal(number); err == nil {
			return d.String()
		}
	}
	return n.Value
}
