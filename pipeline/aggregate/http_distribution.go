package aggregate

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/internal/httpjson"
	"github.com/tallygate/tallygate/pipeline/event"
)

// distributionReply is the answer to GET /v1/rules/distribution.
type distributionReply struct {
	Rule       string         `json:"rule"`
	Limits     []*limitCounts `json:"limits"`
	Sampled    bool           `json:"sampled"`           // the numbers are estimates from a part of the keys
	Partitions []int32        `json:"partitions"`        // whose keys were looked at, in order
	Missing    []hotMissing   `json:"missing,omitempty"` // partitions without an answer
}

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
	var mine distributionReply
	walked := make(chan struct{})
	go func() { // beside the others, whose walks take as long
		defer close(walked)
		mine = a.walk(r.Context(), version, of)
	}()
	var others []distributionReply
	var missing []hotMissing
	if r.Header.Get(forwardedHeader) == "" {
		others, missing = a.askOthers(r.Context(), rule)
	}
	<-walked
	mine.Rule = rule
	mine.join(others, missing)
	httpjson.Reply(w, mine)
}

// askOthers asks the other instances.
func (a distribution) askOthers(ctx context.Context, rule string) (others []distributionReply, missing []hotMissing) {
	var mine []int32
	for _, p := range a.owned() {
		if p.Live() {
			mine = append(mine, p.ID())
		}
	}
	missing = askRest(ctx, &api{instance: a.instance}, mine, "/v1/rules/distribution?rule="+url.QueryEscape(rule), func(part *distributionReply) []int32 {
		others = append(others, *part)
		answered := slices.Clone(part.Partitions)
		for _, m := range part.Missing {
			answered = append(answered, m.Partition)
		}
		return answered
	})
	return others, missing
}

// join adds what other instances answered. One that runs other rules at this moment has other buckets.
func (r *distributionReply) join(others []distributionReply, missing []hotMissing) {
	r.Missing = append(r.Missing, missing...)
	for i := range others {
		o := &others[i]
		r.Sampled = r.Sampled || o.Sampled
		r.Partitions, r.Missing = append(r.Partitions, o.Partitions...), append(r.Missing, o.Missing...)
		for _, l := range o.Limits {
			at := slices.IndexFunc(r.Limits, func(mine *limitCounts) bool { return mine.Limit == l.Limit })
			if at < 0 {
				r.Limits = append(r.Limits, l)
				continue
			}
			r.Limits[at].join(l)
		}
	}
	slices.Sort(r.Partitions)
	r.Partitions = slices.Compact(r.Partitions)
	slices.SortFunc(r.Missing, func(x, y hotMissing) int { return cmp.Compare(x.Partition, y.Partition) })
	if r.Partitions == nil {
		r.Partitions = []int32{}
	}
	if r.Limits == nil {
		r.Limits = []*limitCounts{}
	}
}

func (c *limitCounts) join(other *limitCounts) {
	c.Keys, c.Over, c.Near = c.Keys+other.Keys, c.Over+other.Over, c.Near+other.Near
	for _, b := range other.Buckets {
		at, there := slices.BinarySearchFunc(c.Buckets, b.To, func(mine countBucket, to decimalText) int { return cmp.Compare(mine.To, to) })
		if there {
			c.Buckets[at].Keys += b.Keys
		} else {
			c.Buckets = slices.Insert(c.Buckets, at, b)
		}
	}
}

// decimalText is a Decimal as text: numbers of JSON lose digits in some languages.
type decimalText event.Decimal

// MarshalText writes it.
func (d decimalText) MarshalText() ([]byte, error) { return event.Decimal(d).AppendTo(nil), nil }

// UnmarshalText reads what another instance wrote.
func (d *decimalText) UnmarshalText(text []byte) error {
	n, err := event.ParseDecimal(string(text))
	*d = decimalText(n)
	return err
}
