package rules

import (
	"github.com/cespare/xxhash/v2"

	"github.com/tallygate/tallygate/event"
)

// refund returns what an event means that takes back what another one counted: it is for every
// rule that remembers events of its key, whatever else it has.
func (m *Matcher) refund(e *event.Event) []Work {
	if e.Refunds == "" {
		return nil
	}
	named := xxhash.Sum64String(e.Refunds)
	for _, r := range m.set.Rules {
		if !r.Refunds {
			continue
		}
		key := &m.keys.of[r.Shape.Index]
		if key.event != m.keys.event {
			m.keys.make(key, e, r.Shape)
		}
		if !key.there {
			continue
		}
		m.use(r, key)
		for _, l := range r.Limits {
			key.hits = append(key.hits, Hit{Limit: l, Refund: true, Value: named, Cost: -max(e.Cost, -event.MaxDecimal)})
		}
	}
	return m.finish(e)
}
