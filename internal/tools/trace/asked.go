package trace

import (
	"context"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/replay"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// asked counts nothing: it asks an aggregator for the counts, and says what would become of them.
type asked struct {
	aggregator replay.Aggregator
	ongoing    bool // the events are being counted while they are traced
}

// broker is now: the question is what would happen.
func (a *asked) broker(rec *replay.Record) event.Micros {
	if rec.Broker == event.NoTime {
		return now()
	}
	return rec.Broker
}

func (a *asked) count(ctx context.Context, _ *replay.Record, at event.Micros, to []target, _ bool) ([]verdict.Verdict, error) {
	known := map[string][]rules.Explanation{}
	for i := range to {
		t := &to[i]
		key := string(t.why.Key)
		list, ok := known[key]
		if !ok {
			var err error
			if list, err = a.aggregator.Explain(ctx, dimsOf(t.why.Key)); err != nil {
				return nil, err
			}
			known[key] = list
		}
		for j := range t.to.Limits {
			if x := find(list, t.to.Limits[j].Limit); x != nil {
				a.fill(t, j, x, at)
			}
		}
	}
	return nil, nil
}

// fill sets a limit's count, and the one that the event would bring.
func (a *asked) fill(t *target, i int, x *rules.Explanation, at event.Micros) {
	lt, hit := &t.to.Limits[i], &t.why.Hits[i]
	lt.explained(x, t.why.Rule, t.why.Key)
	if !x.OwnLimit() && hit.Tier != rules.KeepTier { // which no event changes
		lt.Tier = 0
		of := hit.LimitOf()
		if of != rules.Unlimited {
			of = of.Plus(x.Granted)
		}
		lt.bound(of)
		if hit.Tier <= len(hit.Limit.Tiers) {
			lt.Tier = hit.Tier
		}
	}
	lt.Before = x.Count
	if hit.Tells {
		lt.Late, lt.After = tellsNothing(x, at), &lt.Before
		if lt.Late != "" && !x.OwnLimit() {
			lt.Tier = x.Tier
			lt.bound(x.Bound())
		}
		return
	}
	if a.ongoing || t.why.Does == rules.TakesBack || lt.distinct != "" && t.why.Does == rules.Counts {
		return // the event may be counted already, or nobody knows what it adds
	}
	limit := lt.Of
	if limit == 0 && !lt.Closed {
		limit = rules.Unlimited
	}
	after := x.Count.Plus(hit.Amount)
	if t.why.Does == rules.Resets {
		after = 0
	}
	lt.After, lt.Passes = &after, hit.Limit.Passes(after, limit) && lt.Exempt == "" && after > x.Count
}
