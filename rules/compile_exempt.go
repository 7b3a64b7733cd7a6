package rules

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/document"
	"github.com/tallygate/tallygate/rules/internal/network"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// maxExempt bounds how many exemptions a set has.
const maxExempt = 100_000

var errNoFiles = errors.New("no other files are read here")

// exemptReader reads exemptions of a rule, or, where r is nil, of the set.
type exemptReader struct {
	*compiler
	r *Rule
}

// exemptions reads a list of keys that are not judged, or names the file that holds one.
func (c exemptReader) exemptions(n *yaml.Node) (out []Exemption) {
	if n.Kind == yaml.ScalarNode && !document.IsNull(n) {
		return c.exemptFile(n)
	}
	if n.Kind != yaml.SequenceNode {
		c.Fail(n, "as in exempt: [{uid: 42, reason: load test, expires: 2026-12-01T00:00:00Z}] or exempt: vip.yaml",
			"exempt is a list or a file's name, not %s", document.Describe(n))
		return nil
	}
	for _, item := range c.Items(n) {
		if e, ok := c.exemption(item); ok {
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
func (c exemptReader) exemption(n *yaml.Node) (e Exemption, ok bool) {
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
			expires(c.compiler, p.Value, "the exemption", at)
		case name == "ip":
			ok = c.address(p, &e) && ok
		default:
			ok = c.dim(p, &e) && ok
		}
	}
	if ok && (len(e.Key) == 0 && !e.ofNetwork() || e.Reason == "") {
		c.Fail(n, "as in {uid: 42, reason: load test}", "an exemption names a key and a reason")
		return e, false
	}
	slices.SortFunc(e.Key, func(a, b event.Dim) int { return strings.Compare(a.Name, b.Name) })
	if ok && c.r != nil {
		e, _ = e.under(c.r.Shape)
	}
	return e, ok
}

// dim reads a dimension, and the value of it that is exempt.
func (c exemptReader) dim(p document.Pair, e *Exemption) bool {
	name := p.Key.Value
	switch {
	case !event.IsDim(name):
		hint := cmp.Or(event.AddressDimHint(name), "an exemption has dimensions such as uid, reason and expires")
		guess := scalar.DidYouMean(name, append([]string{"reason", "expires"}, plainDims...))
		if _, problem, _ := network.Parse(p.Value.Value); problem == "" && event.AddressDimHint(name) == "" {
			guess = `; did you mean "ip"?`
		}
		c.Fail(p.Key, hint, "%q is no dimension%s", scalar.Shortened(name), guess)
		return false
	case c.r != nil && !slices.Contains(c.r.Shape.dims(), name):
		c.Fail(p.Key, c.countsBy(), "%s is no dimension of the rule's key", name)
		return false
	case strings.HasPrefix(name, "attrs.") && !c.PlainNumber(p.Value, name):
		return false
	case !c.knownDim(p.Key, name) || !c.knownDimValue(p.Value, name, document.ValueText(p.Value)):
		return false
	case name == dimAPI && strings.ContainsAny(p.Value.Value, "*!"):
		c.Fail(p.Value, "name one API, or leave the others out by `match`", "an exemption has no patterns")
		return false
	}
	d, err := dimValue(name, p.Value)
	if err != nil {
		hint := ""
		if _, problem, _ := network.Parse(p.Value.Value); isAddress(name) && problem == "" {
			hint = "all keys of a network are exempt by ip, as in {ip: " + p.Value.Value + "}"
		}
		c.Fail(p.Value, hint, "%v", err)
		return false
	}
	if strings.HasPrefix(name, "attrs.") {
		c.AsWritten(p.Value, name)
	}
	e.Key = append(e.Key, d)
	return true
}

// countsBy says by which dimensions the rule counts, for one that an exemption names by mistake.
func (c exemptReader) countsBy() string {
	if len(c.r.Shape.dims()) == 0 {
		return "the rule counts all requests together; leave out whom it is not for by `when`"
	}
	return "the rule counts by " + strings.Join(c.r.Shape.dims(), ", ")
}

// useWhen suggests a predicate in place of an exemption by ip for a rule whose keys have none: the aggregator judges
// keys, and an event's address is in none of them.
const useWhen = `leave events of a network out by when: not inNetwork(ip, "10.0.0.0/8")`

// address reads an address, a network, or the name of a list of networks.
func (c exemptReader) address(p document.Pair, e *Exemption) bool {
	text := p.Value.Value
	if c.r != nil && !slices.ContainsFunc(c.r.Shape.dims(), isAddress) {
		c.Fail(p.Key, c.countsBy()+"; "+useWhen, "ip is no dimension of the rule's key")
		return false
	}
	if network.IsListName(text) {
		if e.list = c.lists.Networks(text); e.list == nil {
			c.Fail(p.Value, "lists are named in spec.networks, as in networks: {office: [10.0.0.0/8]}", "there is no list of networks %q%s",
				scalar.Shortened(text), c.lists.MeantNetworks(text))
		}
		e.List = text
		return e.list != nil
	}
	in, problem, hint := network.Parse(text)
	if problem != "" {
		c.Fail(p.Value, hint, "ip: %s", problem)
		return false
	}
	if e.In = in; in.IsSingleIP() {
		e.In, e.Key = netip.Prefix{}, append(e.Key, event.Dim{Name: "ip", Value: in.Addr().String()})
	}
	if c.r == nil {
		return true
	}
	if _, covers := (Exemption{In: in}).under(c.r.Shape); !covers {
		c.Fail(p.Value, c.countsBy(), "no key lies in %s: keys of IPv6 networks are larger", in)
		return false
	}
	return true
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
func (c exemptReader) exemptFile(n *yaml.Node) []Exemption {
	name, ok := c.Text(n, "exempt")
	if !ok {
		return nil
	}
	src, ok := c.beside(n, name, "exemptions")
	if !ok {
		return nil
	}
	var out []Exemption
	c.Include(name, src, func(root *yaml.Node) {
		if root.Kind != yaml.SequenceNode {
			c.Fail(root, "as in `- {uid: 42, reason: load test}`, a line each", "a file of exemptions holds a list of them")
			return
		}
		out = c.exemptions(root)
	})
	return out
}

// exemptAll hands the set's own exemptions to the rules whose keys have their dimensions.
func (c *compiler) exemptAll(n *yaml.Node) {
	for _, e := range (exemptReader{c, nil}).exemptions(n) {
		if c.Ended() != nil {
			return
		}
		used := false
		for _, r := range c.set.all {
			if e, covers := e.under(r.Shape); covers {
				r.exempt = append(r.exempt, e)
				used = true
			}
		}
		switch {
		case used:
		case e.ofNetwork() || slices.ContainsFunc(e.Key, func(d event.Dim) bool { return d.Name == "ip" }):
			c.Warn(n, useWhen, "no rule counts by %s", strings.Join(e.dims(), ", "))
		default:
			c.Warn(n, "", "no rule counts by %s", event.FormatKey(e.Key))
		}
	}
}
