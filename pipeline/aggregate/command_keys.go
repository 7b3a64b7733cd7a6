package aggregate

import (
	"bytes"
	"slices"

	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

// wide reports whether a command is about all keys that have its dimensions, and maybe others. With a uid
// among them they are all in one partition; without, they are spread over all.
func (c *Command) wide() bool {
	kind := commandKinds[c.Name]
	return hasUID(c.Key) && (kind == rules.CommandForget || kind == rules.CommandExempt && c.For > 0)
}

func hasUID(key []event.Dim) bool {
	return slices.ContainsFunc(key, func(d event.Dim) bool { return d.Name == "uid" })
}

// keysWith returns the partition's keys that have a key's dimensions, the key itself first, whether or not
// it is there. It looks in slices between events.
func (p *partition) keysWith(key string) ([]string, error) {
	dims, err := event.ParseKey([]byte(key))
	if err != nil {
		return nil, err
	}
	var each [][]byte // name=value, as keys' texts have it
	for _, d := range dims {
		each = append(each, event.AppendDim(nil, d.Name, d.Value))
	}
	out := []string{key}
	for part := range state.Parts {
		out = p.keysWithIn(part, each, out)
	}
	return out, nil
}

func (p *partition) keysWithIn(part int, dims [][]byte, out []string) []string {
	p.lock()
	defer p.mu.Unlock()
	for ref := range p.table.Part(part) {
		if key := p.table.Key(ref); hasAll(key, dims) && string(key) != out[0] {
			out = append(out, string(key))
		}
	}
	return out
}

// hasAll reports whether a key's text has all of the dimensions, each written name=value, in the order of their names.
// A uid is the last one, of dims and of any key that has it: most keys are told by that.
func hasAll(key []byte, dims [][]byte) bool {
	if !bytes.HasSuffix(key, dims[len(dims)-1]) {
		return false
	}
	for d := range bytes.SplitSeq(key, []byte("&")) {
		if len(dims) > 0 && bytes.Equal(d, dims[0]) {
			dims = dims[1:]
		}
	}
	return len(dims) == 0
}

// without returns what is in list and not in other.
func without(list, other []string) []string {
	known := make(map[string]bool, len(other))
	for _, key := range other {
		known[key] = true
	}
	return slices.DeleteFunc(list, func(key string) bool { return known[key] })
}
