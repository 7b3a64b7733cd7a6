package ask

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
)

// distribution tells how many keys have counted how much under a rule.
type distribution struct {
	*base
	walking chan struct{} // holds one while this instance walks its keys
}

const (
	// walkPartition and walkInstance are how many keys of a partition, and of all of an instance, are looked at; of
	// more it is a sample.
	walkPartition = 200_000
	walkInstance  = 1_000_000

	// walkWithin bounds a walk, and waiting for one that is under way.
	walkWithin = 4 * time.Second

	// linearBuckets lie below the limit, and all together are at most allBuckets.
	linearBuckets = 20
	allBuckets    = 40

	// nearBy is the share of its limit, in percent, from which on a key is near it.
	nearBy = 80
)

// errRulesMove says that a walk met another version of the rules.
var errRulesMove = errors.New("the rules are changing: try again")

// limitCounts counts the keys under one limit.
type limitCounts struct {
	api.LimitCounts
	bounds []event.Decimal // the upper ends of buckets
	found  []int           // by bucket
}

// newLimitCounts makes the buckets of a limit: equal ones up to it, and above it each twice as far as the one before.
// They are the same at all instances. Without a number the first one is of one event.
func newLimitCounts(l *rules.Limit) *limitCounts {
	number, same := rules.NumberOf(l)
	c := &limitCounts{}
	if _, name, ok := strings.Cut(l.Name, "/"); ok {
		c.Limit = name
	}
	if same {
		text := api.DecimalText(number)
		c.Number = &text
	}
	last := event.One
	if number > 0 {
		n := event.Decimal(linearBuckets)
		if number.Whole() && number < n*event.One {
			n = number / event.One
		}
		for i := event.Decimal(1); i < n; i++ {
			c.bounds = append(c.bounds, number/n*i+number%n*i/n)
		}
		last = number
	}
	for c.bounds = append(c.bounds, last); len(c.bounds) < allBuckets && last < event.MaxDecimal/2; {
		last *= 2
		c.bounds = append(c.bounds, last)
	}
	c.found = make([]int, len(c.bounds))
	return c
}

// add takes in a key.
func (c *limitCounts) add(count, limit event.Decimal, weight int) {
	if count <= 0 {
		return
	}
	c.Keys += weight
	i, _ := slices.BinarySearch(c.bounds, count)
	c.found[min(i, len(c.found)-1)] += weight
	switch {
	case limit == rules.Unlimited:
	case count > limit:
		c.Over += weight
	case count >= limit/100*nearBy+limit%100*nearBy/100:
		c.Near += weight
	}
}

// finish makes the buckets up to the last one with a key, and all up to the limit.
func (c *limitCounts) finish() {
	last := 0
	for i, n := range c.found {
		if n > 0 || c.Number != nil && c.bounds[i] <= event.Decimal(*c.Number) {
			last = i
		}
	}
	c.Buckets = make([]api.CountBucket, last+1)
	from := event.Decimal(0)
	for i := range c.Buckets {
		c.Buckets[i] = api.CountBucket{From: api.DecimalText(from), To: api.DecimalText(c.bounds[i]), Keys: c.found[i]}
		from = c.bounds[i]
	}
}

// limitsOf are the limits of a rule, or one by its name.
func limitsOf(set *rules.Set, rule string) (all []*rules.Limit) {
	for _, l := range set.Limits {
		if l.Rule.Name == rule || l.Name == rule {
			all = append(all, l)
		}
	}
	return all
}

// walk looks at the keys of all partitions that this instance has.
func (a *distribution) walk(ctx context.Context, v *owner.Rules, of []*rules.Limit) (reply api.Distribution) {
	ctx, cancel := context.WithTimeout(ctx, walkWithin)
	defer cancel()
	w := walker{version: v, of: of, at: now()}
	for _, l := range of {
		w.counts = append(w.counts, newLimitCounts(l))
	}
	parts := a.instance.Owned()
	select { // not around questions to others: two instances would wait for each other
	case a.walking <- struct{}{}:
		defer func() { <-a.walking }()
	case <-ctx.Done():
		for _, p := range parts {
			reply.Missing = append(reply.Missing, api.MissingPartition{Partition: p.ID(), Reason: "its owner looks at the keys for somebody else: try again"})
		}
		return reply
	}
	most := min(walkPartition, walkInstance/max(1, len(parts)))
	for _, p := range parts {
		if err := w.partition(ctx, p, most); err != nil {
			reply.Missing = append(reply.Missing, api.MissingPartition{Partition: p.ID(), Reason: whyNotWalked(err)})
			continue
		}
		reply.Partitions = append(reply.Partitions, p.ID())
	}
	reply.Sampled = w.sampled
	for _, c := range w.counts {
		c.finish()
		reply.Limits = append(reply.Limits, c.LimitCounts)
	}
	return reply
}

func whyNotWalked(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("it has too many keys to look at within %v", walkWithin)
	}
	return err.Error()
}

// walker looks at keys.
type walker struct {
	version *owner.Rules
	of      []*rules.Limit
	at      event.Micros
	counts  []*limitCounts
	sampled bool
}

// seen is a key of a part of the table. All are kept apart until the part is complete.
type seen struct {
	limit        int
	count, bound event.Decimal
}

// partition looks at about so many keys of a partition. Keys lie in its parts by their hashes, so that some parts are a
// fair sample of all.
func (w *walker) partition(ctx context.Context, p Part, most int) error {
	keys := p.Sight().Keys
	parts := shard.Parts
	if keys > most {
		parts, w.sampled = max(1, shard.Parts*most/keys), true
	}
	var all []seen
	for part := range parts {
		some, err := w.part(ctx, p, part)
		if err != nil {
			return err
		}
		all = append(all, some...)
	}
	whole, rest := shard.Parts/parts, shard.Parts%parts
	for i, s := range all { // each stands for as many as were not looked at
		weight := whole
		if (i*rest)%parts < rest {
			weight++
		}
		w.counts[s.limit].add(s.count, s.bound, weight)
	}
	return nil
}

// walkTries bounds how often a part is begun again because it has grown meanwhile.
const walkTries = 3

// part looks at the keys of a part, in slices between events.
func (w *walker) part(ctx context.Context, p Part, part int) (all []seen, err error) {
	counter := rules.NewCounter(w.version.Set, w.of)
	for place, size, tries := 0, -1, 0; place >= 0; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !p.Live() {
			return nil, fmt.Errorf("%w: partition %d", ErrNotOwner, p.ID())
		}
		was, began := size, time.Now()
		p.View(func(s *shard.Shard, v *owner.Rules) {
			if v.Set.Hash != w.version.Set.Hash {
				err = errRulesMove
				return
			}
			n := 0
			began = time.Now()
			place, size, err = s.Walk(part, place, func(key, state []byte) bool {
				bad := counter.Counts(state, key, w.at, func(i int, count, limit event.Decimal) {
					if count > 0 {
						all = append(all, seen{i, count, limit})
					}
				})
				n++
				return bad == nil && (n%walkLook != 0 || time.Since(began) < owner.SliceTime)
			})
		})
		if err != nil {
			return nil, err
		}
		retry.Sleep(ctx, time.Since(began)) // events have half of the time
		if was >= 0 && size != was && tries < walkTries {
			all, place, tries = all[:0], 0, tries+1
		}
	}
	return all, nil
}

// walkLook is after how many keys a slice looks at the clock.
const walkLook = 16

// ServeDistribution answers GET /v1/rules/distribution?rule=…: how many keys have which count now.
func (a *distribution) ServeDistribution(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	rule := q.Get("rule")
	if len(q) != 1 || len(q["rule"]) != 1 || rule == "" {
		httpjson.Problem(w, http.StatusBadRequest, "which rule? rule=NAME, and no other parameter")
		return
	}
	if a.instance.Partitions() == 0 || !a.instance.Online() {
		httpjson.Problem(w, http.StatusServiceUnavailable, "the topics have not been checked yet")
		return
	}
	version := a.rules.Current()
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
func (a *distribution) askOthers(ctx context.Context, rule string) (others []api.Distribution, missing []api.MissingPartition) {
	var mine []int32
	for _, p := range a.instance.Owned() {
		mine = append(mine, p.ID())
	}
	missing = askRest(ctx, a.base, mine, "/v1/rules/distribution?rule="+url.QueryEscape(rule), func(part *api.Distribution) []int32 {
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
