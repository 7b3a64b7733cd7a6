package rules

import (
	"net/netip"
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/network"
)

// Exemption is a key, or all keys with some values, that is counted and not judged.
type Exemption struct {
	Key     []event.Dim  // sorted; some of the rule's dimensions, for all values of the others
	In      netip.Prefix // and the key's address, or its network, lies in this one; the zero Prefix: anywhere
	List    string       // or in a list of spec.networks
	Reason  string
	Expires event.Micros // by the key's latest time; NoTime: never

	list *network.Set // of List
}

// exemptIndex finds a key's exemption among many.
type exemptIndex struct {
	groups []exemptGroup // one for each choice of dimensions
}

type exemptGroup struct {
	names    []string
	parts    []keyDim                // names, taken apart
	until    map[string]event.Micros // by the text of these dimensions; NoTime: for ever
	networks exemptNetworks          // the same, where an address is to lie in a network
}

// newExemptIndex returns nil when there are none.
func newExemptIndex(all []Exemption) *exemptIndex {
	if len(all) == 0 {
		return nil
	}
	x := &exemptIndex{}
	for i := range all {
		e := &all[i]
		var names []string
		for _, d := range e.Key {
			names = append(names, d.Name)
		}
		i := slices.IndexFunc(x.groups, func(g exemptGroup) bool { return slices.Equal(g.names, names) })
		if i < 0 {
			i = len(x.groups)
			x.groups = append(x.groups, exemptGroup{names: names, parts: keyDims(names), until: map[string]event.Micros{}})
		}
		g, text := &x.groups[i], event.FormatKey(e.Key)
		if e.ofNetwork() {
			g.networks.add(text, e)
			continue
		}
		was, twice := g.until[text]
		g.until[text] = longer(was, e.Expires, twice)
	}
	return x
}

// longer is the later of two ends, where there are two.
func longer(was, until event.Micros, two bool) event.Micros {
	if two && (was == event.NoTime || until != event.NoTime && until <= was) {
		return was
	}
	return until
}

// spares reports whether an exemption that holds until a moment holds at another: at NoTime, which is not
// known, only one that has no end.
func spares(until, at event.Micros) bool {
	return until == event.NoTime || at != event.NoTime && at < until
}

// covers tells whether a key, its dimensions sorted, is exempt at a time.
func (x *exemptIndex) covers(key []event.Dim, at event.Micros) bool {
	if x == nil {
		return false
	}
	for i := range x.groups {
		g := &x.groups[i]
		var text []byte
		for _, d := range key {
			if slices.Contains(g.names, d.Name) {
				text = event.AppendDim(text, d.Name, d.Value)
			}
		}
		if until, listed := g.until[string(text)]; listed && spares(until, at) {
			return true
		}
		if g.networks.none() {
			continue
		}
		for _, d := range key {
			if in, ok := networkOf(d); ok && g.networks.cover(text, in, at) {
				return true
			}
		}
	}
	return false
}
