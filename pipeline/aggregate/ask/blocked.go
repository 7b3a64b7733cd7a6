package ask

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/verdict"
)

const (
	blockedLimit    = 1000 // default number of keys per page
	maxBlockedLimit = 10_000

	// blockedLooks bounds the keys that a page examines, and so the copies that it makes.
	blockedLooks = 16 << 10

	// blockedAtOnce bounds the pages that an instance makes at the same time.
	blockedAtOnce = 4
)

// blockedQuery holds the parameters of one page.
type blockedQuery struct {
	partition int32
	rule      string // "" is any
	limit     int
	after     string // next of the previous page; "" is the first page
}

func (a *keys) blockedQuery(q url.Values, partitions int32) (b blockedQuery, err error) {
	n, err := strconv.ParseInt(q.Get("partition"), 10, 32)
	if err != nil || n < 0 || int32(n) >= partitions {
		return b, fmt.Errorf("which partition? 0 to %d", partitions-1)
	}
	b = blockedQuery{partition: int32(n), rule: q.Get("rule"), limit: blockedLimit, after: q.Get("after")}
	if b.rule != "" && !a.rules.Current().Set.Names(b.rule) {
		return b, noRule(b.rule)
	}
	if text := q.Get("limit"); text != "" {
		if b.limit, err = strconv.Atoi(text); err != nil || b.limit < 1 || b.limit > maxBlockedLimit {
			return b, fmt.Errorf("limit: 1 to %d", maxBlockedLimit)
		}
	}
	return b, nil
}

// ServeBlocked answers GET /v1/blocked?partition=0[&rule=…][&limit=…][&after=…] with one page of
// the partition's keys that have a verdict in force, of any rule or of one. The instance that owns
// the partition answers.
func (a *keys) ServeBlocked(w http.ResponseWriter, r *http.Request) {
	partitions := a.instance.Partitions()
	if partitions == 0 || !a.instance.Online() {
		httpjson.Problem(w, http.StatusServiceUnavailable, "the topics have not been checked yet")
		return
	}
	q, err := a.blockedQuery(r.URL.Query(), partitions)
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	reply := api.Blocked{Partitions: partitions, Partition: q.partition}
	reply.Keys, reply.Next, err = a.blocked(r.Context(), q, now())
	switch {
	case errors.Is(err, ErrNotOwner) && r.Header.Get(forwardedHeader) == "":
		a.forward(w, r, q.partition, a.peers.ask, nil)
	case errors.Is(err, ErrNotOwner):
		httpjson.Problem(w, http.StatusServiceUnavailable, "the partition is changing its owner: try again")
	case err != nil:
		httpjson.Problem(w, http.StatusInternalServerError, err.Error())
	default:
		httpjson.Reply(w, reply)
	}
}

// blocked makes a page. It examines the partition in slices between events, in the order of the
// keys' hashes. That order is the same for every owner: a caller who continues after a page misses
// no key that was there all the time.
func (a *keys) blocked(ctx context.Context, q blockedQuery, at event.Micros) (page []api.BlockedKey, next string, err error) {
	p := a.instance.Part(q.partition)
	if p == nil {
		return nil, "", fmt.Errorf("%w: partition %d", ErrNotOwner, q.partition)
	}
	select { // not around a forwarded request: two instances would wait for each other
	case a.listing <- struct{}{}:
		defer func() { <-a.listing }()
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
	page, next = []api.BlockedKey{}, q.after
	part := 0
	if next != "" {
		part = shard.PartOf([]byte(next))
	}
	for looks := blockedLooks; part < shard.Parts; part++ {
		for {
			keys, more := keysBehind(p, part, next, looks)
			for left := keys; len(left) > 0; {
				if err := ctx.Err(); err != nil {
					return nil, "", err
				}
				n, err := q.some(p, left, at, &page)
				if err != nil {
					return nil, "", err
				}
				next, left = string(left[n-1]), left[n:]
				if len(page) == q.limit {
					return page, next, nil
				}
			}
			if looks -= len(keys); looks <= 0 {
				return page, next, nil
			}
			if !more {
				break
			}
		}
	}
	return page, "", nil
}

// keysBehind copies at most so many keys of a part of the table, those that follow one. more
// reports whether others follow.
func keysBehind(p Part, part int, behind string, most int) (keys [][]byte, more bool) {
	p.View(func(s *shard.Shard, _ *owner.Rules) { keys, more = s.KeysBehind(part, behind, most) })
	return keys, more
}

// ruleOf returns the rule that a limit belongs to, by the limit's name.
func ruleOf(limit string) string {
	rule, _, _ := strings.Cut(limit, "/")
	return rule
}

// some examines the first of the keys, for as long as events may be delayed, and returns how many.
func (q *blockedQuery) some(p Part, keys [][]byte, at event.Micros, out *[]api.BlockedKey) (n int, err error) {
	p.ViewSome(func(s *shard.Shard, v *owner.Rules) bool {
		if n == len(keys) || len(*out) == q.limit || err != nil {
			return false
		}
		var by []string
		if by, err = q.rulesOf(s, v, keys[n], at); err == nil && len(by) > 0 {
			var dims []event.Dim
			dims, err = event.ParseKey(keys[n])
			*out = append(*out, api.BlockedKey{Key: byName(dims), Rules: by})
		}
		n++
		return true
	})
	return n, err
}

// rulesOf returns the limits that block a key, if the query asks for them.
func (q *blockedQuery) rulesOf(s *shard.Shard, v *owner.Rules, key []byte, at event.Micros) (by []string, err error) {
	state, err := s.State(key)
	if err != nil || state == nil { // evicted meanwhile
		return nil, err
	}
	for _, e := range v.Set.Explain(state, key, at, "") {
		if e.Verdict != nil && e.Verdict.Mode == verdict.Enforce && (q.rule == "" || q.rule == e.Rule || q.rule == ruleOf(e.Rule)) {
			by = append(by, e.Rule)
		}
	}
	return slices.Compact(by), nil
}
