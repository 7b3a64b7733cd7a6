package rules

import (
	"slices"

	"github.com/tallygate/tallygate/pipeline/event"
)

// Exemption is a key, or all keys with some values, that is counted and not judged.
type Exemption struct {
	Key     []event.Dim // sorted; some of the rule's dimensions, for all values of the others
	Reason  string
	Expires event.Micros // by the key's latest time; NoTime: never
}

// exemptIndex finds a key's exemption among many.
type exemptIndex struct {
	groups []exemptGroup // one for each choice of dimensions
}

type exemptGroup struct {
	names []string
	parts []keyDim                // names, taken apart
	until map[string]event.Micros // by the text of these dimensions; NoTime: for ever
}

// newExemptIndex returns nil when there are none.
func newExemptIndex(all []Exemption) *exemptIndex {
	if len(all) == 0 {
		return nil
	}
	x := &exemptIndex{}
	for _, e := range all {
		var names []string
		for _, d := range e.Key {
			names = append(names, d.Name)
		}
		i := slices.IndexFunc(x.groups, func(g exemptGroup) bool { return slices.Equal(g.names, names) })
		if i < 0 {
			i = len(x.groups)
			x.groups = append(x.groups, exemptGroup{names, keyDims(names), map[string]event.Micros{}})
		}
		until, text := x.groups[i].until, event.FormatKey(e.Key)
		if was, twice := until[text]; !twice || was != event.NoTime && (e.Expires == event.NoTime || e.Expires > was) {
			until[text] = e.Expires
		}
	}
	return x
}

// covers tells whether a key, its dimensions sorted, is exempt at a time.
func (x *exemptIndex) covers(key []event.Dim, at event.Micros) bool {
	if x == nil {
		return false
	}
	for _, g := range x.groups {
		var text []byte
		for _, d := range key {
			if slices.Contains(g.names, d.Name) {
				text = event.AppendDim(text, d.Name, d.Value)
			}
		}
		if until, listed := g.until[string(text)]; listed && (until == event.NoTime || at < until) {
			return true
		}
	}
	return false
}
