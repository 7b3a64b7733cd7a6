package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// elsewhere says where fields belong that are often written in another place.
var elsewhere = map[string]string{
	"at": "then", "extend": "then", "reset": "then", "escalate": "then", "forget": "then", "block": "then", "action": "then", "apis": "then",
	"tiers": "the rule or its limit", "candidate": "the rule or its limit", "mode": "the rule", "public": "the rule", "fuse": "the rule", "exempt": "the rule or spec",
	"refunds": "the rule", "when": "the rule", "unlimited": "a tier", "outcome": "match", "key": "the rule", "warn": "the rule",
	"sum": "count", "distinct": "count", "timezone": "the rule or its limit", "per": "the rule or its limit",
}

// object is a YAML mapping with known fields.
type object struct {
	node   *yaml.Node
	fields map[string]*yaml.Node // the values that are there
	spoilt map[string]bool       // fields that are there in some wrong way: don't call them missing
	merged bool                  // fields come from somewhere else, which is refused
}

func (o *object) get(name string) *yaml.Node { return o.fields[name] }

// has reports whether the field is there, rightly or wrongly.
func (o *object) has(name string) bool { return o.fields[name] != nil || o.spoilt[name] || o.merged }

// mappings show how those are written that people write as a list or as text.
var mappings = map[string]string{
	"a rule file":  "it begins with `apiVersion: tallygate.dev/v1` and `kind: RuleSet`; rules are a list under spec: rules:",
	"metadata":     "as in metadata: {name: shop}",
	"match":        "as in match: {api: search.query}",
	"then":         "as in then: {block: 5m} or then: {block: until-reset}",
	"an exemption": "as in {uid: 42, reason: load test}",
	"a tier":       `as in {when: 'attrs.plan == "pro"', limit: 100}`,
	"a limit":      "as in {name: burst, limit: 5, per: 1s}",
	"recent_ids":   "as in recent_ids: {count: 64, for: 10m}",
}

// pair is one entry of a YAML mapping.
type pair struct{ key, value *yaml.Node }

// pairs returns a mapping's entries, aliases resolved, and reports what no mapping here may
// have: merge keys, keys that are no text, duplicates.
func (c *compiler) pairs(n *yaml.Node, what string) ([]pair, bool) {
	if name, rest, ok := glued(n); ok {
		c.failGlued(n, name, rest)
		return nil, false
	}
	if n.Kind != yaml.MappingNode {
		c.fail(n, mappings[what], "%s is a mapping, not %s", what, describe(n))
		return nil, false
	}
	first := make(map[string]int, len(n.Content)/2)
	out := make([]pair, 0, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := c.resolve(n.Content[i]), c.resolve(n.Content[i+1])
		if key == nil || value == nil {
			return nil, false
		}
		name, rest, isGlued := glued(key)
		switch line, twice := first[key.Value]; {
		case isGlued:
			c.failGlued(key, name, rest)
			c.glued[n] = true
		case key.Kind != yaml.ScalarNode || isNull(key):
			c.fail(key, "", "a field's name is text, not %s", describe(key))
		case isMerge(key):
			c.fail(key, "write the fields out, or use an alias for the whole value",
				"YAML merge keys (<<) are not supported")
		case twice:
			c.fail(key, fmt.Sprintf("the first one is on line %d", line), "%q is given twice", key.Value)
		default:
			first[key.Value] = key.Line
			out = append(out, pair{key, value})
		}
	}
	return out, true
}

// object reads a mapping with known fields; unknown ones are mistakes.
func (c *compiler) object(n *yaml.Node, what string, known ...string) (*object, bool) {
	pairs, ok := c.pairs(n, what)
	o := &object{node: n, fields: make(map[string]*yaml.Node, len(pairs)), spoilt: map[string]bool{}}
	o.merged = slices.ContainsFunc(n.Content, isMerge) || c.glued[n]
	for _, p := range pairs {
		name := p.key.Value
		switch {
		case !slices.Contains(known, name):
			c.unknownField(o, p.key, known)
		case isNull(p.value):
			o.spoilt[name] = true
			c.fail(p.key, "write its value behind the colon, or leave the field out", "`%s` has no value", name)
		default:
			o.fields[name] = p.value
		}
	}
	return o, ok
}

func (c *compiler) unknownField(o *object, key *yaml.Node, known []string) {
	o.spoilt[key.Value] = true
	if s, ok := fieldWords[scalar.Folded(key.Value)]; ok {
		if meant := s.here(known); meant != "" {
			o.spoilt[meant] = true
			hint := s.write
			if scalar.Closest(key.Value, known) == meant {
				hint = "" // no other word, but a slip
			}
			c.fail(key, hint, "unknown field %q; did you mean %q?", key.Value, meant)
			return
		}
		inRule := slices.Contains(known, "match") || slices.Contains(known, "api") || slices.Contains(known, "block")
		if inRule && scalar.Closest(key.Value, known) == "" && elsewhere[key.Value] == "" {
			c.fail(key, s.write, "unknown field %q", key.Value)
			return
		}
	}
	if meant := scalar.Closest(key.Value, known); meant != "" {
		o.spoilt[meant] = true
		c.fail(key, "", "unknown field %q; did you mean %q?", key.Value, meant)
		return
	}
	if place := elsewhere[key.Value]; place != "" {
		c.fail(key, "", "`%s` belongs to %s", key.Value, place)
		return
	}
	c.fail(key, "the fields here are "+strings.Join(known, ", "), "unknown field %q", key.Value)
}

// resolve follows an alias, and counts what is read: nil when it is too much.
func (c *compiler) resolve(n *yaml.Node) *yaml.Node {
	if c.nodes++; c.nodes > maxNodes {
		if c.nodes == maxNodes+1 {
			c.fail(n, "use fewer aliases, or several rule sets", "the file is too large with its aliases written out")
		}
		return nil
	}
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// items returns a list's values, aliases resolved.
func (c *compiler) items(n *yaml.Node) []*yaml.Node {
	out := make([]*yaml.Node, 0, len(n.Content))
	for _, item := range n.Content {
		if item = c.resolve(item); item == nil {
			return nil
		}
		out = append(out, item)
	}
	return out
}

// oneOrMore returns the values of a list that is not empty, or the one value that is no list.
func (c *compiler) oneOrMore(n *yaml.Node, what string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		return []*yaml.Node{n}
	}
	if len(n.Content) == 0 {
		c.fail(n, "leave the field out, or put something into the list", "%s is an empty list", what)
	}
	return c.items(n)
}

// text returns a scalar's text as it is written, without quotes.
func (c *compiler) text(n *yaml.Node, what string) (string, bool) {
	switch {
	case n.Kind != yaml.ScalarNode || isNull(n):
		c.fail(n, "", "%s is one value, not %s", what, describe(n))
		return "", false
	case !isCoreTag(n.ShortTag()):
		c.fail(n, "", "the YAML tag %s is not supported", n.ShortTag())
		return "", false
	case n.ShortTag() == "!!float" && notFinite.MatchString(n.Value):
		c.fail(n, "where it is text, put it into quotes: "+strconv.Quote(n.Value), "%s: %s is no number here", what, n.Value)
		return "", false
	}
	return n.Value, true
}

// notFinite is what YAML reads as infinity, or as no number at all.
var notFinite = regexp.MustCompile(`^[-+]?\.(inf|Inf|INF|nan|NaN|NAN)$`)

// word returns a scalar that is one of the given words.
func (c *compiler) word(n *yaml.Node, what string, words ...string) (string, bool) {
	s, ok := c.text(n, what)
	if !ok {
		return "", false
	}
	if slices.Contains(words, s) {
		return s, true
	}
	hint := what + " is one of " + strings.Join(words, ", ")
	if len(words) == 1 {
		hint = "this version knows " + words[0]
	}
	guess := scalar.DidYouMean(s, words)
	if meant := valueWords[what][scalar.Folded(s)]; meant != "" {
		guess = fmt.Sprintf("; did you mean %q?", meant)
	}
	c.fail(n, hint, "%s %q is not known%s", what, scalar.Shortened(s), guess)
	return "", false
}

func isCoreTag(tag string) bool {
	switch tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp", "!!merge":
		return true
	}
	return false
}

func isMerge(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!merge" }

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// describe says what a node is, for "… is a mapping, not …".
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	case len(n.Value) > 40:
		return "a text"
	}
	return fmt.Sprintf("%q", n.Value)
}
