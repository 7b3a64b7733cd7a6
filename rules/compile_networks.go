package rules

import (
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/rules/document"
	"github.com/tallygate/tallygate/rules/internal/network"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// Bounds on lists of networks.
const (
	maxNetworks     = 100_000 // in all of them
	maxNetworkLists = 100
	maxBadLines     = 20 // of a file, that are told
)

// networkLists are the lists that spec.networks names.
type networkLists struct {
	byName map[string]*networkList
	count  int // networks in all of them
}

type networkList struct {
	set  *network.Set
	at   *yaml.Node // its name
	used bool
}

// named finds what predicates name.
type named struct {
	scalar.Zones
	*networkLists
}

// Networks returns a list, which is used from now on; nil when there is none of that name.
func (x *networkLists) Networks(name string) *network.Set {
	l := x.byName[name]
	if l == nil {
		return nil
	}
	l.used = true
	return l.set
}

// sets are the lists by their names.
func (x *networkLists) sets() map[string]*network.Set {
	out := make(map[string]*network.Set, len(x.byName))
	for name, l := range x.byName {
		out[name] = l.set
	}
	return out
}

// MeantNetworks guesses which list a name that there is not was to be.
func (x *networkLists) MeantNetworks(name string) string {
	var names []string
	for name := range x.byName {
		names = append(names, name)
	}
	slices.Sort(names)
	return scalar.DidYouMean(name, names)
}

// networkReader reads lists of networks.
type networkReader struct{ *compiler }

// networks reads the lists: each stands in the rule file, or in one of its own.
func (c networkReader) networks(n *yaml.Node) {
	pairs, ok := c.Pairs(n, "networks")
	if !ok {
		return
	}
	for i, p := range pairs {
		if i == maxNetworkLists {
			c.Fail(p.Key, "put networks that are used together into one list", "there are more than %d lists of networks", maxNetworkLists)
			return
		}
		name, ok := c.name(p.Key, "the name of a list of networks")
		if !ok {
			continue
		}
		list := &networkList{at: p.Key}
		c.lists.byName[name] = list
		switch {
		case p.Value.Kind == yaml.SequenceNode:
			list.set = network.New(c.inline(p.Value))
		case p.Value.Kind == yaml.ScalarNode && !document.IsNull(p.Value):
			list.set = network.New(c.file(p.Value))
		default:
			c.Fail(p.Value, "as in office: [10.0.0.0/8, 192.0.2.7], or office: office.txt", "a list of networks is a list or a file's name, not %s", document.Describe(p.Value))
		}
	}
}

// inline reads networks that stand in the rule file.
func (c networkReader) inline(n *yaml.Node) (out []netip.Prefix) {
	for _, item := range c.OneOrMore(n, "a list of networks") {
		text, ok := c.Text(item, "a network")
		if !ok {
			continue
		}
		p, problem, hint := network.Parse(text)
		if problem != "" {
			c.Fail(item, hint, "%s", problem)
			continue
		}
		if out = append(out, p); c.tooMany(func(hint, message string) { c.Fail(item, hint, message, maxNetworks) }) {
			break
		}
	}
	return out
}

// file reads a file with a network in each line. What stands behind a # is for people.
func (c networkReader) file(n *yaml.Node) (out []netip.Prefix) {
	name, ok := c.Text(n, "a list of networks")
	if !ok {
		return nil
	}
	if _, problem, _ := network.Parse(name); problem == "" {
		c.Fail(n, "write ["+name+"]", "a list of networks stands in brackets; %s would be a file's name", name)
		return nil
	}
	src, ok := c.beside(n, name, "networks")
	if !ok {
		return nil
	}
	if len(src) == 0 {
		c.Fail(n, "a list that has no network now is a file with a comment, such as # none", "%s is empty", scalar.Shortened(name))
		return nil
	}
	c.IncludeText(name, src, func(lines []string) { out = c.lines(lines) })
	return out
}

func (c networkReader) lines(lines []string) (out []netip.Prefix) {
	bad := 0
	for i, line := range lines {
		text, _, _ := strings.Cut(line, "#")
		entry := strings.TrimSpace(text)
		if entry == "" {
			continue
		}
		column := 1 + utf8.RuneCountInString(text[:strings.IndexFunc(text, func(r rune) bool { return !unicode.IsSpace(r) })])
		p, problem, hint := network.Parse(entry)
		if problem != "" {
			if bad++; bad > maxBadLines {
				c.FailAt(i+1, column, "", "more lines are no networks: only the first %d are shown", maxBadLines)
				break
			}
			if strings.ContainsAny(entry, " \t,;") {
				hint = "a line has one network; a comment stands behind a #"
			}
			c.FailAt(i+1, column, hint, "%s", problem)
			continue
		}
		if out = append(out, p); c.tooMany(func(hint, message string) { c.FailAt(i+1, column, hint, message, maxNetworks) }) {
			break
		}
	}
	return out
}

// tooMany counts one more.
func (c networkReader) tooMany(fail func(hint, message string)) bool {
	if c.lists.count++; c.lists.count == maxNetworks+1 {
		fail("name larger networks, or give events an attribute that says where they come from", "there are more than %d networks in all lists")
	}
	return c.lists.count > maxNetworks
}

// warnUnused warns of lists that nothing names, such as one of which the name was changed in one place.
func (c networkReader) warnUnused() {
	for name, l := range c.lists.byName {
		if !l.used {
			c.Warn(l.at, "as in when: inNetwork(ip, \""+name+"\")", "no rule and no exemption names the networks %q", name)
		}
	}
}

// beside reads a file that the rule file names, once.
func (c *compiler) beside(n *yaml.Node, name, what string) ([]byte, bool) {
	src, known := c.set.Files[name]
	if known {
		return src, true
	}
	src, err := c.read(name)
	if err != nil {
		c.Fail(n, "", "read %s from %s: %v", what, scalar.Shortened(name), err)
		return nil, false
	}
	c.set.Files[name] = src
	return src, true
}
