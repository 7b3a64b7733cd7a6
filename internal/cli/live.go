package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/tallygate/tallygate/internal/apiclient"
	"github.com/tallygate/tallygate/internal/grouprules"
	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/internal/replay"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

// liveGroup is an aggregator that commands ask for what its group runs and has counted. Its Close is the client's.
type liveGroup struct{ *apiclient.Client }

// liveGroups is replay.Aggregators.
func liveGroups(o *ops.Options) func() (replay.Aggregator, error) {
	at := apiclient.NewOptions(o)
	return func() (replay.Aggregator, error) {
		aggregator, err := at.Open()
		if err != nil {
			return nil, err
		}
		return liveGroup{aggregator}, nil
	}
}

// Rules implements replay.Aggregator.
func (g liveGroup) Rules(ctx context.Context) (*rules.Set, error) {
	body, err := g.Get(ctx, "/v1/rules")
	if err != nil {
		return nil, fmt.Errorf("load the group's rules: %w", err)
	}
	version, err := grouprules.Parse(body)
	if err != nil {
		return nil, err
	}
	return version.Compile()
}

// Explain implements replay.Aggregator.
func (g liveGroup) Explain(ctx context.Context, key []event.Dim) ([]rules.Explanation, error) {
	q := url.Values{"exact": {"true"}}
	for _, d := range key {
		name := d.Name
		if name == "api" { // alone it leaves only an API's rules
			name = "key.api"
		}
		q.Set(name, d.Value)
	}
	body, err := g.Get(ctx, "/v1/explain?"+q.Encode())
	if err != nil {
		return nil, err
	}
	var a explainAnswer
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, fmt.Errorf("read the aggregator's response: %w", err)
	}
	out := make([]rules.Explanation, len(a.Rules))
	for i := range a.Rules {
		out[i] = rules.Explanation(a.Rules[i].Explanation)
	}
	return out, nil
}
