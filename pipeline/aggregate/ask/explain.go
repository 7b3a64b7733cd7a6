package ask

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// ErrNotOwner says that another instance owns the key's partition.
var ErrNotOwner = errors.New("aggregate: another instance owns the key")

// keys answers what is asked about keys.
type keys struct {
	*base
	listing  chan struct{}   // holds one for each page of blocked keys that is being made
	strictly StrictExplainer // nil: nobody knows
}

// Explain returns, for every rule that counts by these dimensions, the key's count at now and the
// verdict in force. With an api, it returns only the rules that apply to it. The dimensions must be
// sorted by name.
func (a *keys) Explain(key []event.Dim, api string, now event.Micros) ([]rules.Explanation, error) {
	list, _, err := a.explain(key, api, now)
	return list, err
}

// explain is Explain, and returns the strict limits that it is about.
func (a *keys) explain(key []event.Dim, api string, now event.Micros) ([]rules.Explanation, []*rules.Limit, error) {
	id := a.home(key)
	p := a.instance.Part(id)
	if p == nil {
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

const (
	explainedKeys    = 20 // by default: how many keys that contain the one that was asked for
	maxExplainedKeys = 1000

	// explainLooks bounds the keys of a partition that are explained to find those that are blocked; the
	// rest is only counted.
	explainLooks = 2000
)

// explainKey explains one key of an owned partition.
func (a *keys) explainKey(ctx context.Context, key []event.Dim, concerns string) (api.Explained, error) {
	list, strict, err := a.explain(key, concerns, now())
	if err != nil {
		return api.Explained{}, err
	}
	return a.told(ctx, key, list, strict), nil
}

// told returns the answer about a key that was explained.
func (a *keys) told(ctx context.Context, key []event.Dim, list []rules.Explanation, strict []*rules.Limit) api.Explained {
	reply := api.Explained{Key: byName(key), Partition: a.home(key), Hot: a.heatOf(key)}
	reply.Rules, reply.Strict = a.explainStrict(ctx, key, list, strict)
	p := a.instance.Part(reply.Partition)
	if p != nil && slices.ContainsFunc(list, func(e rules.Explanation) bool { return e.Granted > 0 || e.LimitFrom == rules.FromCommand }) {
		grantsUnder(p, key, reply.Rules)
	}
	if p == nil || !slices.ContainsFunc(list, func(e rules.Explanation) bool { return e.Exempt }) {
		return reply
	}
	all := exemptionsOf(p, key)
	for i := range reply.Rules {
		if e := &reply.Rules[i]; e.Exempt {
			e.ExemptBy = concerning(all, e.Rule)
		}
	}
	return reply
}

// looked is a key that was explained.
type looked struct {
	key    []event.Dim
	list   []rules.Explanation
	strict []*rules.Limit
}

// enforced is 1 when something is in force on the key that is enforced, else 0.
func (k *looked) enforced() int {
	if slices.ContainsFunc(k.list, func(e rules.Explanation) bool { return enforced(e.Verdict) }) {
		return 1
	}
	return 0
}

// containing explains keys of an owned partition that contain the dimensions of another key, at most so
// many: those that are blocked first. more is how many are left out.
func (a *keys) containing(ctx context.Context, id int32, ask *explainAsk) (out []api.Explained, more int, err error) {
	p := a.instance.Part(id)
	if p == nil {
		return nil, 0, ErrNotOwner
	}
	texts, err := p.KeysWith(ctx, ask.key)
	if err != nil {
		return nil, 0, err
	}
	slices.Sort(texts)
	var keys []looked
	for _, text := range texts[:min(explainLooks, len(texts))] {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		var k looked
		if k.key, err = event.ParseKey([]byte(text)); err != nil {
			return nil, 0, err
		}
		if k.list, k.strict, err = a.explain(k.key, ask.api, now()); err != nil {
			return nil, 0, err
		}
		if len(k.list)+len(k.strict) > 0 { // else no rule counts it any more, or none that concerns the API
			keys = append(keys, k)
		}
	}
	slices.SortStableFunc(keys, func(x, y looked) int { return cmp.Compare(y.enforced(), x.enforced()) })
	for _, k := range keys[:min(ask.limit, len(keys))] {
		out = append(out, a.told(ctx, k.key, k.list, k.strict))
	}
	return out, len(keys) - len(out) + max(0, len(texts)-explainLooks), nil
}

// enforced reports whether something is in force that is enforced.
func enforced(v *verdict.Verdict) bool { return v != nil && v.Mode == verdict.Enforce }

// explainPart explains the keys in one partition that contain another one: this instance's, or, unless it
// was asked by another instance, any.
func (a *keys) explainPart(ctx context.Context, id int32, ask *explainAsk) (part api.Explained, err error) {
	part.Others, part.More, err = a.containing(ctx, id, ask)
	if errors.Is(err, ErrNotOwner) && !ask.passedOn {
		return askOwner[api.Explained](ctx, a.base, id, http.MethodGet, "/v1/explain?"+ask.query(id), nil)
	}
	return part, err
}

// explainOthers adds to a reply the keys that contain its own: with a uid all of them are in its
// partition, else they are in any.
func (a *keys) explainOthers(ctx context.Context, ask *explainAsk, reply *api.Explained) {
	in := []int32{reply.Partition}
	if !hasUID(ask.key) {
		in = a.every()
	}
	scatter(in, partsAtOnce, func(id int32) (api.Explained, error) { return a.explainPart(ctx, id, ask) }, func(id int32, part api.Explained, err error) {
		if err != nil {
			reply.Missing = append(reply.Missing, api.MissingPartition{Partition: id, Reason: err.Error()})
		}
		reply.Others = append(reply.Others, part.Others...)
		reply.More += part.More
	})
	slices.SortFunc(reply.Missing, func(x, y api.MissingPartition) int { return cmp.Compare(x.Partition, y.Partition) })
	slices.SortFunc(reply.Others, func(x, y api.Explained) int {
		return cmp.Or(cmp.Compare(isEnforced(&y), isEnforced(&x)), cmp.Compare(event.FormatKey(dimsOf(x.Key)), event.FormatKey(dimsOf(y.Key))))
	})
	if n := len(reply.Others); n > ask.limit {
		reply.Others, reply.More = reply.Others[:ask.limit], reply.More+n-ask.limit
	}
}

// isEnforced is 1 when something is in force on the key that is enforced, else 0.
func isEnforced(r *api.Explained) int {
	if slices.ContainsFunc(r.Rules, func(e api.ExplainedRule) bool { return enforced(e.Verdict) }) {
		return 1
	}
	return 0
}

// explainAsk is a question of GET /v1/explain.
type explainAsk struct {
	key       []event.Dim
	api       string // only the rules that concern it; "" is all
	exact     bool   // no keys that contain this one
	limit     int    // of these
	partition *int32 // only those in there
	passedOn  bool   // another instance asks
}

// query asks for what is in one partition.
func (q *explainAsk) query(partition int32) string {
	v := url.Values{"partition": {strconv.Itoa(int(partition))}, "limit": {strconv.Itoa(q.limit)}}
	for _, d := range q.key {
		v.Set(keyParameter+d.Name, d.Value)
	}
	if q.api != "" {
		v.Set("api", q.api)
	}
	return v.Encode()
}

// StrictExplainer returns the standing of a key of an owned partition under strict limits: one for
// each limit, in their order, or none when Redis does not answer.
type StrictExplainer func(ctx context.Context, partition int32, key string, limits []*rules.Limit) ([]api.StrictStanding, api.StrictState)

// inFlightWindow is the window's name in explanations of what is under way.
const inFlightWindow = "in-flight"

// strictWithin bounds the question to Redis: the rest of the answer does not need it.
const strictWithin = time.Second

// ExplainStrict has explanations of keys tell what the function says. Call it before Run.
func (a *keys) ExplainStrict(ask StrictExplainer) { a.strictly = ask }

// explainStrict adds to explanations where the key stands under strict limits, and the limits that count
// what is under way: they have no counters.
func (a *keys) explainStrict(ctx context.Context, key []event.Dim, list []rules.Explanation, limits []*rules.Limit) ([]api.ExplainedRule, *api.StrictState) {
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
				out[at].Count, out[at].Explanation.Limit, out[at].Explanation.Closed = standings[i].Held, standings[i].Limit, standings[i].Closed
				out[at].Left = max(standings[i].Limit-standings[i].Held, 0)
			}
		}
	}
	return out, &state
}

func (a *keys) standings(ctx context.Context, key []event.Dim, limits []*rules.Limit) ([]api.StrictStanding, api.StrictState) {
	if a.strictly == nil {
		return nil, api.StrictState{DoubtSince: event.NoTime, Why: "the aggregator runs without Redis, where permits are granted"}
	}
	ctx, cancel := context.WithTimeout(ctx, strictWithin)
	defer cancel()
	return a.strictly(ctx, a.home(key), string(event.AppendKey(nil, key)), limits)
}

// underWay explains a limit that nothing but permits counts under.
func underWay(l *rules.Limit) api.Explanation {
	return api.Explanation{
		Rule: l.Name, Public: l.Rule.Public, Window: inFlightWindow, Limit: l.Limit, Closed: l.Limit == 0, From: event.NoTime, Until: event.NoTime,
		FreesAt: event.NoTime, Latest: event.NoTime, Counted: event.NoTime, Mode: l.Rule.Mode,
	}
}
