package cli

import (
	"context"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/grouprules"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/tools/replay"
	"github.com/tallygate/tallygate/rules"
)

// liveGroup is an aggregator that commands ask for what its group runs and has counted. Its Close is the client's.
type liveGroup struct{ *api.Client }

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
	version, err := grouprules.Parse(g.Get(ctx, "/v1/rules"))
	if err != nil {
		return nil, err
	}
	return grouprules.Compile(version)
}

// Explain implements replay.Aggregator.
func (g liveGroup) Explain(ctx context.Context, key []event.Dim) ([]rules.Explanation, error) {
	q := api.KeyQuery(key)
	q.Set("exact", "true")
	a, err := g.Client.Explain(ctx, q)
	if err != nil {
		return nil, err
	}
	out := make([]rules.Explanation, len(a.Rules))
	for i := range a.Rules {
		out[i] = rules.Explanation(a.Rules[i].Explanation)
	}
	return out, nil
}
