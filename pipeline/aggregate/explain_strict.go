package aggregate

import (
	"context"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

// StrictExplainer says where a key of an owned partition stands under strict limits: one standing for
// each limit, in their order, or none when Redis does not answer.
type StrictExplainer func(ctx context.Context, partition int32, key string, limits []*rules.Limit) ([]api.StrictStanding, api.StrictState)

// inFlightWindow is what explanations call the window of what is under way.
const inFlightWindow = "in-flight"

// strictWithin bounds the question to Redis: the rest of the answer does not need it.
const strictWithin = time.Second

// ExplainStrict has explanations of keys tell what the function says. Call it before Run.
func (a *answers) ExplainStrict(ask StrictExplainer) { a.strictly = ask }

// explainStrict adds to explanations where the key stands under strict limits, and the limits that count
// what is under way: they have no counters.
func (a *answers) explainStrict(ctx context.Context, key []event.Dim, list []rules.Explanation, limits []*rules.Limit) ([]api.ExplainedRule, *api.StrictState) {
	out := make([]api.ExplainedRule, len(list))
	place := map[string]int{}
	for i := range list {
		out[i].Explanation = api.Explanation(list[i])
		place[list[i].Rule] = i
	}
	if len(limits) == 0 {
		return out, nil
	}
	standings, state := a.standings(ctx, key, limits)
	for i, l := range limits {
		at, there := place[l.Name]
		if !there {
			at = len(out)
			out = append(out, api.ExplainedRule{Explanation: underWay(l)})
		}
		if i < len(standings) {
			out[at].Strict = &standings[i]
			if !there {
				out[at].Count, out[at].Explanation.Limit = standings[i].Held, standings[i].Limit
				out[at].Left = max(standings[i].Limit-standings[i].Held, 0)
			}
		}
	}
	return out, &state
}

func (a *answers) standings(ctx context.Context, key []event.Dim, limits []*rules.Limit) ([]api.StrictStanding, api.StrictState) {
	if a.strictly == nil {
		return nil, api.StrictState{DoubtSince: event.NoTime, Why: "the aggregator runs without Redis, where permits are granted"}
	}
	ctx, cancel := context.WithTimeout(ctx, strictWithin)
	defer cancel()
	return a.strictly(ctx, a.Partition(key), string(event.AppendKey(nil, key)), limits)
}

// underWay explains a limit that nothing but permits counts under.
func underWay(l *rules.Limit) api.Explanation {
	return api.Explanation{
		Rule: l.Name, Public: l.Rule.Public, Window: inFlightWindow, Limit: l.Limit, From: event.NoTime, Until: event.NoTime,
		FreesAt: event.NoTime, Latest: event.NoTime, Counted: event.NoTime, Mode: l.Rule.Mode,
	}
}
