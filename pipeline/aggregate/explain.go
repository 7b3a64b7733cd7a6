package aggregate

import (
	"fmt"

	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

// Explain returns, for every rule that counts by these dimensions, the key's count at now and the
// verdict in force. With an api, it returns only the rules that apply to it. The dimensions must be
// sorted by name.
func (a *answers) Explain(key []event.Dim, api string, now event.Micros) ([]rules.Explanation, error) {
	list, _, err := a.explain(key, api, now)
	return list, err
}

// explain is Explain, and returns the strict limits that it is about.
func (a *answers) explain(key []event.Dim, api string, now event.Micros) ([]rules.Explanation, []*rules.Limit, error) {
	id := a.Partition(key)
	p := a.partition(id)
	if p == nil || !p.Live() {
		return nil, nil, fmt.Errorf("%w: partition %d", ErrNotOwner, id)
	}
	text := event.AppendKey(nil, key)
	var state []byte // a copy; nil when there is none
	var stepper *rules.Stepper
	var strict []*rules.Limit
	var err error
	p.View(func(s *shard.Shard, r *owner.Rules) {
		strict = r.Set.StrictLimits(key, api)
		stepper = s.Explainer(key)
		state, err = s.State(text)
	})
	if err != nil {
		return nil, nil, err
	}
	return stepper.Explain(state, text, now, api), strict, nil
}
