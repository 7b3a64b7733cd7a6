package aggregate

import (
	"slices"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

// wide reports whether a command is about all keys that have its dimensions, and maybe others. With a uid
// among them they are all in one partition; without, they are spread over all.
func (c *Command) wide() bool {
	kind := shard.CommandKinds[c.Name]
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
	for part := range shard.Parts {
		out = p.keysWithIn(part, each, out)
	}
	return out, nil
}

func (p *partition) keysWithIn(part int, dims [][]byte, out []string) []string {
	p.lock()
	defer p.mu.Unlock()
	return p.shard.KeysWith(out, part, dims, out[0])
}

// without returns what is in list and not in other.
func without(list, other []string) []string {
	known := make(map[string]bool, len(other))
	for _, key := range other {
		known[key] = true
	}
	return slices.DeleteFunc(list, func(key string) bool { return known[key] })
}
