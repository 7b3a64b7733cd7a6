package rules

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// maxExempt bounds how many exemptions a set has.
const maxExempt = 100_000

var errNoFiles = errors.New("no other files are read here")

// exemptions reads a list of keys that are not judged, or names the file that holds one. r is nil
// for the set's own list.
func (c *compiler) exemptions(n *yaml.Node, r *Rule) (out []Exemption) {
	if n.Kind == yaml.ScalarNode && !isNull(n) {
		return c.exemptFile(n, r)
	}
	if n.Kind != yaml.SequenceNode {
		c.fail(n, "as in exempt: [{uid: 42, reason: load test, expires: 2026-12-01T00:00:00Z}] or exempt: vip.yaml",
			"exempt is a list or a file's name, not %s", describe(n))
		return nil
	}
	for _, item := range c.items(n) {
		if e, ok := c.exemption(item, r); ok {
			out = append(out, e)
		}
		if c.exempt++; c.exempt == maxExempt+1 {
			c.fail(item, "match them by an attribute, with `when`", "there are more than %d exemptions", maxExempt)
		}
		if c.exempt > maxExempt {
			return out
		}
	}
	return out
}

// exemption reads one of them: dimensions and their values, reason and expires.
func (c *compiler) exemption(n *yaml.Node, r *Rule) (e Exemption, ok bool) {
	pairs, ok := c.pairs(n, "an exemption")
	if !ok {
		return e, false
	}
	e.Expires = event.NoTime
	for _, p := range pairs {
		text, isText := c.text(p.value, p.key.Value)
		switch name := p.key.Value; {
		case !isText:
			ok = false
		case name == "reason":
			e.Reason = text
		case name == "expires":
			at, err := event.ParseMicros(text)
			if err != nil {
				c.fail(p.value, "as in 2026-12-01T00:00:00Z", "expires: %q is not an RFC 3339 time", scalar.Shortened(text))
				ok = false
			}
			e.Expires = at
		case !event.IsDim(name):
			c.fail(p.key, "an exemption has dimensions such as uid, reason and expires", "%q is no dimension%s", scalar.Shortened(name),
				scalar.DidYouMean(name, []string{"uid", "ip", "ip/64", "reason", "expires"}))
			ok = false
		case r != nil && !slices.Contains(r.Shape.dims(), name):
			c.fail(p.key, "the rule counts by "+strings.Join(r.Shape.dims(), ", "), "%s is no dimension of the rule's key", name)
			ok = false
		case strings.HasPrefix(name, "attrs.") && !c.plainNumber(p.value, name):
			ok = false
		default:
			d, err := dimValue(name, p.value)
			if err != nil {
				hint := ""
				if _, err := netip.ParsePrefix(p.value.Value); name == "ip" && err == nil {
					hint = "an exemption is of one address, or, for a rule with key: ip/64, of one network such as 2001:db8::/64"
				}
				c.fail(p.value, hint, "%v", err)
				ok = false
			}
			e.Key = append(e.Key, d)
		}
	}
	if ok && (len(e.Key) == 0 || e.Reason == "") {
		c.fail(n, "as in {uid: 42, reason: load test}", "an exemption names a key and a reason")
		return e, false
	}
	slices.SortFunc(e.Key, func(a, b event.Dim) int { return strings.Compare(a.Name, b.Name) })
	return e, ok
}

// dimValue is a dimension's value as keys have it.
func dimValue(name string, n *yaml.Node) (event.Dim, error) {
	value := n.Value
	if strings.HasPrefix(name, "attrs.") {
		value = valueText(n)
	}
	return event.NewDim(name, value)
}

// exemptFile reads exemptions from another file: a list of them.
func (c *compiler) exemptFile(n *yaml.Node, r *Rule) []Exemption {
	name, ok := c.text(n, "exempt")
	if !ok {
		return nil
	}
	src, known := c.set.Files[name]
	if !known {
		var err error
		if src, err = c.read(name); err != nil {
			c.fail(n, "", "read exemptions from %s: %v", scalar.Shortened(name), err)
			return nil
		}
		c.set.Files[name] = src
	}
	main := c.src
	c.src = newSource(name, src)
	defer func() { c.src = main }()
	root, bad := parseYAML(src, c.src)
	switch {
	case bad != nil:
		c.errs = append(c.errs, bad)
		return nil
	case root.Kind != yaml.SequenceNode:
		c.fail(root, "as in `- {uid: 42, reason: load test}`, a line each", "a file of exemptions holds a list of them")
		return nil
	}
	return c.exemptions(root, r)
}

// exemptAll hands the set's own exemptions to the rules whose keys have their dimensions.
func (c *compiler) exemptAll(n *yaml.Node) {
	for _, e := range c.exemptions(n, nil) {
		used := false
		for _, r := range c.set.Rules {
			if r.Shape.hasAll(e.Key) {
				r.exempt = append(r.exempt, e)
				used = true
			}
		}
		if !used {
			c.warn(n, "", "no rule counts by %s", event.FormatKey(e.Key))
		}
	}
}

func (k *KeyShape) hasAll(key []event.Dim) bool {
	return !slices.ContainsFunc(key, func(d event.Dim) bool { return !slices.Contains(k.Dims, d.Name) })
}
