package aggregate

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tallygate/tallygate/pipeline/event"
)

// Partition returns the partition that owns a key.
func (a *instance) Partition(key []event.Dim) int32 {
	return partitionOf(key, a.found.Load().Partitions)
}

// partitionOf returns the partition that owns a key: its uid's if it has one, else its text's.
func partitionOf(key []event.Dim, partitions int32) int32 {
	var text []byte
	for _, d := range key {
		if d.Name == "uid" {
			return event.Partition([]byte(d.Value), partitions)
		}
		text = event.AppendDim(text, d.Name, d.Value)
	}
	return event.Partition(text, partitions)
}

func hasUID(key []event.Dim) bool {
	return slices.ContainsFunc(key, func(d event.Dim) bool { return d.Name == "uid" })
}

// keyOf returns the key that events with these dimensions count under, sorted by name.
func keyOf(named map[string]string) (key []event.Dim, err error) {
	for _, name := range slices.Sorted(maps.Keys(named)) {
		d, err := event.NewDim(name, named[name])
		if err != nil {
			return nil, err
		}
		key = append(key, d)
	}
	if n := len(event.AppendKey(nil, key)); n > event.MaxKey {
		return nil, fmt.Errorf("the key is too long: its text would have %d bytes, at most %d", n, event.MaxKey)
	}
	return key, nil
}

// byName returns a key in the form that JSON has.
func byName(key []event.Dim) map[string]string {
	out := make(map[string]string, len(key))
	for _, d := range key {
		out[d.Name] = d.Value
	}
	return out
}
