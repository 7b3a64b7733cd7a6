package ask

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/keytext"
)

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
	return fits(key)
}

// fits refuses a key that is too long for any event.
func fits(key []event.Dim) ([]event.Dim, error) {
	if n := len(event.AppendKey(nil, key)); n > event.MaxKey {
		return nil, fmt.Errorf("the key is too long: its text would have %d bytes, at most %d", n, event.MaxKey)
	}
	return key, nil
}

// keyDims is a key in JSON: an object, or the text that people and record keys have.
type keyDims []event.Dim

// UnmarshalJSON gives it the values that events' keys have.
func (k *keyDims) UnmarshalJSON(data []byte) (err error) {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*k, err = keyOfText(text)
		return err
	}
	var named map[string]string
	if err := json.Unmarshal(data, &named); err != nil {
		return fmt.Errorf(`key: want {"uid": "42"}, or "uid=42": %w`, err)
	}
	if *k, err = keyOf(named); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	return nil
}

// keyLists are several keys in JSON.
type keyLists [][]event.Dim

// UnmarshalJSON reads each as keyDims.
func (l *keyLists) UnmarshalJSON(data []byte) error {
	var keys []keyDims
	if err := json.Unmarshal(data, &keys); err != nil {
		return err
	}
	for _, k := range keys {
		if len(k) == 0 {
			return errors.New("keys: one of them has no dimension")
		}
		*l = append(*l, k)
	}
	return nil
}

// keyOfText is keyOf for a key as people write it, and as record keys have it.
func keyOfText(text string) ([]event.Dim, error) {
	key, err := keytext.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	return fits(key)
}

// byName returns a key in the form that JSON has.
func byName(key []event.Dim) map[string]string {
	out := make(map[string]string, len(key))
	for _, d := range key {
		out[d.Name] = d.Value
	}
	return out
}
