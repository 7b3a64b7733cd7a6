package rules

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules/document"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// maxExempt bounds how many exemptions a set has.
const maxExempt = 100_000

var errNoFiles = errors.New("no other files are read here")

// exemptions reads a list of keys that are not judged, or names the file that holds one. r is nil
// for the set's own list.
func (c *compiler) exemptions(n *yaml.Node, r *Rule) (out []Exemption) {
	if n.Kind == yaml.ScalarNode && !document.IsNull(n) {
		return c.exemptFile(n, r)
	}
	if n.Kind != yaml.SequenceNode {
		c.Fail(n, "as in exempt: [{uid: 42, reason: load test, expires: 2026-12-01T00:00:00Z}] or exempt: vip.yaml",
			"exempt is a list or a file's name, not %s", document.Describe(n))
		return nil
	}
	for _, item := range c.Items(n) {
		if e, ok := c.exemption(item, r); ok {
			out = append(out, e)
		}
		if c.exempt++; c.exempt == maxExempt+1 {
			c.Fail(item, "match them by an attribute, with `when`", "there are more than %d exemptions", maxExempt)
		}
		if c.exempt > maxExempt {
			return out
		}
	}
	return out
}

// exemption reads one of them: dimensions and their values, reason and expires.
func (c *compiler) exemption(n *yaml.Node, r *Rule) (e Exemption, ok bool) {
	pairs, ok := c.Pairs(n, "an exemption")
	if !ok {
		return e, false
	}
	e.Expires = event.NoTime
	for _, p := range pairs {
		text, isText := c.Text(p.Value, p.Key.Value)
		switch name := p.Key.Value; {
		case !isText:
			ok = false
		case name == "reason":
			e.Reason = text
		case name == "expires":
			at, err := event.ParseMicros(text)
			if err != nil {
				c.Fail(p.Value, "as in 2026-12-01T00:00:00Z", "expires: %q is not an RFC 3339 time", scalar.Shortened(text))
				ok = false
			}
			e.Expires = at
		case !event.IsDim(name):
			hint := cmp.Or(event.AddressDimHint(name), "an exemption has dimensions such as uid, reason and expires")
			c.Fail(p.Key, hint, "%q is no dimension%s", scalar.Shortened(name), scalar.DidYouMean(name, append([]string{"reason", "expires"}, plainDims...)))
			ok = false
		case r != nil && !slices.Contains(r.Shape.dims(), name):
			by := "the rule counts by " + strings.Join(r.Shape.dims(), ", ")
			if len(r.Shape.dims()) == 0 {
				by = "the rule counts all requests together; leave out whom it is not for by `when`"
			}
			c.Fail(p.Key, by, "%s is no dimension of the rule's key", name)
			ok = false
		case strings.HasPrefix(name, "attrs.") && !c.PlainNumber(p.Value, name):
			ok = false
		case name == dimAPI && strings.Contains(text, "*"):
			c.Fail(p.Value, "name one API, or leave the others out by `match`", "an exemption has no patterns")
			ok = false
		default:
			d, err := dimValue(name, p.Value)
			if err != nil {
				hint := ""
				if _, err := netip.ParsePrefix(p.Value.Value); name == "ip" && err == nil {
					hint = "an exemption is of one address, or, for a rule with key: ip/24, of one network such as 192.0.2.0/24"
				}
				c.Fail(p.Value, hint, "%v", err)
				ok = false
			}
			e.Key = append(e.Key, d)
		}
	}
	if ok && (len(e.Key) == 0 || e.Reason == "") {
		c.Fail(n, "as in {uid: 42, reason: load test}", "an exemption names a key and a reason")
		return e, false
	}
	slices.SortFunc(e.Key, func(a, b event.Dim) int { return strings.Compare(a.Name, b.Name) })
	return e, ok
}

// dimValue is a dimension's value as keys have it.
func dimValue(name string, n *yaml.Node) (event.Dim, error) {
	value := n.Value
	if strings.HasPrefix(name, "attrs.") {
		value = document.ValueText(n)
	}
	return event.NewDim(name, value)
}

// exemptFile reads exemptions from another file: a list of them.
func (c *compiler) exemptFile(n *yaml.Node, r *Rule) []Exemption {
	name, ok := c.Text(n, "exempt")
	if !ok {
		return nil
	}
	src, err := c.file(name)
	if err != nil {
		c.Fail(n, "", "read exemptions from %s: %v", scalar.Shortened(name), err)
		return nil
	}
	var out []Exemption
	c.Include(name, src, func(root *yaml.Node) {
		if root.Kind != yaml.SequenceNode {
			c.Fail(root, "as in `- {uid: 42, reason: load test}`, a line each", "a file of exemptions holds a list of them")
			return
		}
		out = c.exemptions(root, r)
	})
	return out
}

// file reads another file that the source names, once.
func (c *compiler) file(name string) ([]byte, error) {
	src, known := c.set.Files[name]
	if known {
		return src, nil
	}
	src, err := c.read(name)
	if err == nil {
		c.set.Files[name] = src
	}
	return src, err
}

// exemptAll hands the set's own exemptions to the rules whose keys have their dimensions.
func (c *compiler) exemptAll(n *yaml.Node) {
	for _, e := range c.exemptions(n, nil) {
		used := false
		for _, r := range c.set.all {
			if r.Shape.hasAll(e.Key) {
				r.exempt = append(r.exempt, e)
				used = true
			}
		}
		if !used {
			c.Warn(n, "", "no rule counts by %s", event.FormatKey(e.Key))
		}
	}
}
