package aggregate

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/httpjson"
)

// cutLimit splits a limit's name.
func cutLimit(name string) (rule, limit string, ok bool) { return strings.Cut(name, "/") }

// ServeDistribution answers GET /v1/rules/distribution?rule=…: how many keys have which count now.
func (a distribution) ServeDistribution(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	rule := q.Get("rule")
	if len(q) != 1 || len(q["rule"]) != 1 || rule == "" {
		httpjson.Problem(w, http.StatusBadRequest, "which rule? rule=NAME, and no other parameter")
		return
	}
	if a.found.Load() == nil || !a.online.Load() {
		httpjson.Problem(w, http.StatusServiceUnavailable, "the topics have not been checked yet")
		return
	}
	version := a.book.Current()
	of := limitsOf(version.Set, rule)
	if len(of) == 0 {
		httpjson.Problem(w, http.StatusBadRequest, noRule(rule).Error())
		return
	}
	var mine api.Distribution
	walked := make(chan struct{})
	go func() { // beside the others, whose walks take as long
		defer close(walked)
		mine = a.walk(r.Context(), version, of)
	}()
	var others []api.Distribution
	var missing []api.MissingPartition
	if r.Header.Get(forwardedHeader) == "" {
		others, missing = a.askOthers(r.Context(), rule)
	}
	<-walked
	mine.Rule = rule
	joinDistributions(&mine, others, missing)
	httpjson.Reply(w, mine)
}

// askOthers asks the other instances.
func (a distribution) askOthers(ctx context.Context, rule string) (others []api.Distribution, missing []api.MissingPartition) {
	var mine []int32
	for _, p := range a.owned() {
		if p.Live() {
			mine = append(mine, p.ID())
		}
	}
	missing = askRest(ctx, &answers{instance: a.instance}, mine, "/v1/rules/distribution?rule="+url.QueryEscape(rule), func(part *api.Distribution) []int32 {
		others = append(others, *part)
		answered := slices.Clone(part.Partitions)
		for _, m := range part.Missing {
			answered = append(answered, m.Partition)
		}
		return answered
	})
	return others, missing
}

// joinDistributions adds what other instances answered. One that runs other rules at this moment has other buckets.
func joinDistributions(r *api.Distribution, others []api.Distribution, missing []api.MissingPartition) {
	r.Missing = append(r.Missing, missing...)
	for i := range others {
		o := &others[i]
		r.Sampled = r.Sampled || o.Sampled
		r.Partitions, r.Missing = append(r.Partitions, o.Partitions...), append(r.Missing, o.Missing...)
		for _, l := range o.Limits {
			at := slices.IndexFunc(r.Limits, func(mine api.LimitCounts) bool { return mine.Limit == l.Limit })
			if at < 0 {
				r.Limits = append(r.Limits, l)
				continue
			}
			joinCounts(&r.Limits[at], &l)
		}
	}
	slices.Sort(r.Partitions)
	r.Partitions = slices.Compact(r.Partitions)
	slices.SortFunc(r.Missing, func(x, y api.MissingPartition) int { return cmp.Compare(x.Partition, y.Partition) })
	if r.Partitions == nil {
		r.Partitions = []int32{}
	}
	if r.Limits == nil {
		r.Limits = []api.LimitCounts{}
	}
}

func joinCounts(c, other *api.LimitCounts) {
	c.Keys, c.Over, c.Near = c.Keys+other.Keys, c.Over+other.Over, c.Near+other.Near
	for _, b := range other.Buckets {
		at, there := slices.BinarySearchFunc(c.Buckets, b.To, func(mine api.CountBucket, to api.DecimalText) int { return cmp.Compare(mine.To, to) })
		if there {
			c.Buckets[at].Keys += b.Keys
		} else {
			c.Buckets = slices.Insert(c.Buckets, at, b)
		}
	}
}
