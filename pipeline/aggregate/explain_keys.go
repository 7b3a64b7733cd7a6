package aggregate

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

const (
	explainedKeys    = 20 // by default: how many keys that contain the one that was asked for
	maxExplainedKeys = 1000

	// explainLooks is how many keys of a partition are explained to find those that are blocked; the rest
	// is only counted.
	explainLooks = 2000
)

// explainKey explains one key of an owned partition.
func (a *answers) explainKey(ctx context.Context, key []event.Dim, concerns string) (api.Explained, error) {
	list, strict, err := a.explain(key, concerns, now())
	if err != nil {
		return api.Explained{}, err
	}
	return a.told(ctx, key, list, strict), nil
}

// told is what is told of a key that was explained.
func (a *answers) told(ctx context.Context, key []event.Dim, list []rules.Explanation, strict []*rules.Limit) api.Explained {
	reply := api.Explained{Key: byName(key), Partition: a.Partition(key), Hot: a.heatOf(key)}
	reply.Rules, reply.Strict = a.explainStrict(ctx, key, list, strict)
	p := a.partition(reply.Partition)
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
func (a *answers) containing(ctx context.Context, id int32, ask *explainAsk) (out []api.Explained, more int, err error) {
	p := a.partition(id)
	if p == nil || !p.Live() {
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
func (a *answers) explainPart(ctx context.Context, id int32, ask *explainAsk) (part api.Explained, err error) {
	part.Others, part.More, err = a.containing(ctx, id, ask)
	if errors.Is(err, ErrNotOwner) && !ask.passedOn {
		err = askOwner(ctx, a, id, http.MethodGet, "/v1/explain?"+ask.query(id), nil, &part)
	}
	return part, err
}

// explainOthers adds to a reply the keys that contain its own: with a uid all of them are in its
// partition, else they are in any.
func (a *answers) explainOthers(ctx context.Context, ask *explainAsk, reply *api.Explained) {
	in := []int32{reply.Partition}
	if !hasUID(ask.key) {
		in = in[:0]
		for id := range a.found.Load().Partitions {
			in = append(in, id)
		}
	}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(partsAtOnce)
	for _, id := range in {
		g.Go(func() error {
			part, err := a.explainPart(ctx, id, ask)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				reply.Missing = append(reply.Missing, api.MissingPartition{Partition: id, Reason: err.Error()})
			}
			reply.Others = append(reply.Others, part.Others...)
			reply.More += part.More
			return nil
		})
	}
	_ = g.Wait() // the errors are in Missing
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

// explainAsk is what GET /v1/explain asks for.
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
