package blocks

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/auditlog"
	"github.com/tallygate/tallygate/verdict"
)

// What a verdict does, as pages filter it.
const (
	Enforce = "enforce" // it is enforced
	Shadow  = "shadow"  // it would be
	Warn    = "warn"    // a notice
)

// The orders of a page.
const (
	ByUntil = "until" // what ends first is first
	BySince = "since" // the newest first
	ByCount = "count" // the highest count first
)

// Query selects verdicts. The zero value wants all that are in force, what ends first at first.
type Query struct {
	Rule       string        // of this rule, or one of its limits
	Kind       string        // Enforce, Shadow or Warn; "" is all
	Action     string        // block, throttle and so on; "" is all
	Dim        string        // whose key has this dimension
	Key        []event.Dim   // whose key has these values
	EndsWithin time.Duration // 0: whenever
	Sort       string        // ByUntil, BySince or ByCount; "" is ByUntil
	After      string        // Next of the page before
	Limit      int           // rows; 0 is 100
}

// Page is a part of the list.
type Page struct {
	Rows   []verdict.Verdict
	Next   string // "" on the last page. It names a key: seal it before it is in an address
	Found  int    // verdicts that are wanted, on all pages
	All    int    // verdicts in force
	ByRule []RuleCount
}

// RuleCount counts a rule's verdicts in force, whatever the query.
type RuleCount struct {
	Rule                  string
	Enforce, Shadow, Warn int
}

// Total is all of them.
func (c *RuleCount) Total() int { return c.Enforce + c.Shadow + c.Warn }

// kindOf names a verdict's effect.
func kindOf(v *verdict.Verdict) string {
	switch {
	case v.State == verdict.Warn:
		return Warn
	case v.Mode == verdict.Shadow:
		return Shadow
	}
	return Enforce
}

func (q *Query) validate() error {
	if !slices.Contains([]string{"", ByUntil, BySince, ByCount}, q.Sort) {
		return fmt.Errorf("the order %.20q is none: want %s, %s or %s", q.Sort, ByUntil, BySince, ByCount)
	}
	if !slices.Contains([]string{"", Enforce, Shadow, Warn}, q.Kind) {
		return fmt.Errorf("the mode %.20q is none: want %s, %s or %s", q.Kind, Enforce, Shadow, Warn)
	}
	if q.Action != "" && !slices.Contains(verdict.ActionNames(), q.Action) {
		return fmt.Errorf("the action %.20q is none: want one of %s", q.Action, strings.Join(verdict.ActionNames(), ", "))
	}
	return nil
}

const defaultLimit = 100

// Page answers a query. It looks at every verdict once: some 10 ms for 100,000.
func (l *List) Page(q Query) (Page, error) {
	if err := q.validate(); err != nil {
		return Page{}, err
	}
	q.Limit = cmp.Or(q.Limit, defaultLimit)
	after, err := parsePlace(q.After)
	if err != nil {
		return Page{}, err
	}
	now := event.FromTime(l.now())
	var p Page
	counts := map[string]*RuleCount{}
	var best furthestFirst
	l.mu.RLock()
	defer l.mu.RUnlock()
	for i := range l.entries {
		e := &l.entries[i]
		if e.v.State == verdict.Clear || e.v.Until <= now {
			continue
		}
		p.All++
		count(counts, &e.v)
		if !q.wants(&e.v, now) {
			continue
		}
		p.Found++
		at := q.placeOf(e)
		if after != nil && !after.before(&at) {
			continue
		}
		if len(best) > q.Limit && !at.before(&best[0].place) {
			continue
		}
		if heap.Push(&best, found{at, &e.v}); len(best) > q.Limit+1 {
			heap.Pop(&best)
		}
	}
	slices.SortFunc(best, func(x, y found) int { return x.compare(&y.place) })
	if len(best) > q.Limit {
		best = best[:q.Limit]
		p.Next = best[q.Limit-1].place.String()
	}
	p.Rows = make([]verdict.Verdict, len(best))
	for i := range best {
		p.Rows[i] = *best[i].v
	}
	p.ByRule = sorted(counts)
	return p, nil
}

func (q *Query) wants(v *verdict.Verdict, now event.Micros) bool {
	switch {
	case !auditlog.RuleIs(v.Rule, q.Rule):
	case q.Kind != "" && kindOf(v) != q.Kind:
	case q.Action != "" && v.Action.String() != q.Action:
	case q.EndsWithin > 0 && v.Until > now+event.FromDuration(q.EndsWithin):
	case q.Dim != "" && !slices.ContainsFunc(v.Key, func(d event.Dim) bool { return d.Name == q.Dim }):
	default:
		return auditlog.Has(v.Key, q.Key)
	}
	return false
}

func count(counts map[string]*RuleCount, v *verdict.Verdict) {
	c := counts[v.Rule]
	if c == nil {
		c = &RuleCount{Rule: v.Rule}
		counts[v.Rule] = c
	}
	switch kindOf(v) {
	case Warn:
		c.Warn++
	case Shadow:
		c.Shadow++
	default:
		c.Enforce++
	}
}

func sorted(counts map[string]*RuleCount) []RuleCount {
	out := make([]RuleCount, 0, len(counts))
	for _, c := range counts {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(x, y RuleCount) int {
		return cmp.Or(cmp.Compare(y.Total(), x.Total()), cmp.Compare(x.Rule, y.Rule))
	})
	return out
}

// place is a verdict's position in an order.
type place struct {
	value  int64
	record string
}

func (q *Query) placeOf(e *entry) place {
	switch q.Sort {
	case BySince:
		return place{-int64(e.v.Since), e.record}
	case ByCount:
		return place{-int64(min(e.v.Count, math.MaxInt64)), e.record}
	}
	return place{int64(e.v.Until), e.record}
}

func (p *place) compare(other *place) int {
	return cmp.Or(cmp.Compare(p.value, other.value), cmp.Compare(p.record, other.record))
}

func (p *place) before(other *place) bool { return p.compare(other) < 0 }

// String is the place as a cursor; parsePlace reads it.
func (p *place) String() string { return strconv.FormatInt(p.value, 10) + " " + p.record }

func parsePlace(text string) (*place, error) {
	if text == "" {
		return nil, nil
	}
	value, record, ok := strings.Cut(text, " ")
	n, err := strconv.ParseInt(value, 10, 64)
	if !ok || err != nil {
		return nil, errors.New("this is no place in the list")
	}
	return &place{n, record}, nil
}

// found is a row that may be on the page.
type found struct {
	place
	v *verdict.Verdict
}

// furthestFirst is a heap of the rows of a page: the last one is on top.
type furthestFirst []found

func (h furthestFirst) Len() int           { return len(h) }
func (h furthestFirst) Less(i, j int) bool { return h[j].before(&h[i].place) }
func (h furthestFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *furthestFirst) Push(x any)        { f, _ := x.(found); *h = append(*h, f) }
func (h *furthestFirst) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
