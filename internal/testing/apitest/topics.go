package apitest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	apidocs "github.com/tallygate/tallygate/docs/api"
)

// message describes a channel's records.
type message struct {
	name                  string
	key, headers, payload *Schema // nil: anything
	noJSON                bool
}

var described = sync.OnceValues(func() (channels map[string][]message, err error) {
	doc, err := Load(apidocs.Topics)
	if err != nil {
		return nil, err
	}
	root := doc.(map[string]any)
	messages := object(object(root, "components"), "messages")
	channels = map[string][]message{}
	for channel, node := range object(root, "channels") {
		for _, name := range slices.Sorted(maps.Keys(object(node.(map[string]any), "messages"))) {
			about := object(messages, name)
			m := message{name: name, noJSON: about["contentType"] != nil}
			at := func(names ...string) (s *Schema) {
				node := about
				for _, n := range names[:len(names)-1] {
					node = object(node, n)
				}
				if _, ok := node[names[len(names)-1]]; !ok || err != nil {
					return nil
				}
				s, err = CompileClosed(apidocs.Topics + "#" + pointer(append([]string{"components", "messages", name}, names...)...))
				return s
			}
			m.key, m.headers, m.payload = at("bindings", "kafka", "key"), at("headers"), at("payload")
			channels[channel] = append(channels[channel], m)
		}
	}
	return channels, err
})

// CheckRecord returns how a record of a channel of the topics' document is none of its messages. Of
// several headers with one name all have to be as described.
func CheckRecord(channel string, key, value []byte, headers map[string][]string) error {
	channels, err := described()
	if err != nil {
		return err
	}
	if channels[channel] == nil {
		return fmt.Errorf("there is no channel %s", channel)
	}
	var errs []error
	for _, m := range channels[channel] {
		err := m.check(key, value, headers)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("no %s: %w", m.name, err))
	}
	return errors.Join(errs...)
}

func (m *message) check(key, value []byte, headers map[string][]string) error {
	var errs []error
	if m.key != nil {
		errs = append(errs, m.key.ValidateValue(string(key)))
	}
	if m.headers != nil {
		most := 1
		for _, values := range headers {
			most = max(most, len(values))
		}
		for i := range most { // each value is in one of these
			doc := map[string]any{}
			for name, values := range headers {
				doc[name] = strings.ToValidUTF8(values[min(i, len(values)-1)], "\uFFFD")
			}
			errs = append(errs, m.headers.ValidateValue(doc))
		}
	}
	switch {
	case m.noJSON || m.payload == nil:
	case value == nil:
		errs = append(errs, m.payload.ValidateValue(nil))
	default:
		errs = append(errs, m.payload.Validate(value))
	}
	return errors.Join(errs...)
}
