package enforce

import (
	"cmp"
	"slices"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/index"
	"github.com/tallygate/tallygate/verdict"
)

// Left is a key's remainder under a limit whose rule says `quota: true`. It is a hint: some of it may be used by
// requests that are not counted yet.
type Left struct {
	Rule   string // the limit's name, for operators
	Public string // the rule's name that callers may see
	Key    []event.Dim
	APIs   []string // what the rule's verdicts cover

	Limit event.Decimal // of the key's tier; a bucket's burst
	Count event.Decimal // at Since; may be above the limit
	Per   time.Duration // the window's length, of a bucket the time in which its burst drains; 0: it has no fixed one
	Since time.Time     // when the count was that
	Until time.Time     // when the window ends, or nothing of the count is left, if nothing more happens
	At    time.Time     // the time for which the table was asked
}

// Left returns how much is left: Limit - Count, and 0 above the limit.
func (l *Left) Left() event.Decimal { return max(l.Limit-l.Count, 0) }

// quotas are the part of a Table that knows what keys have left.
type quotas struct {
	left  index.Index
	table *Table
}

func (q *quotas) init(t *Table) {
	q.table = t
	q.left.Init(false)
}

// Left returns what is left now for someone with these dimensions, the least first. api leaves only
// limits whose rules' verdicts cover it; "" leaves all but those that count by api. It is empty while the table is stale or
// enforcement is off. A lookup takes no lock, and where nothing is known it allocates nothing.
func (q *quotas) Left(api string, dims []event.Dim) (all []Left) {
	if !q.tells() {
		return nil
	}
	at := q.table.Now()
	q.left.Each(api, dims, func(r index.Record) bool {
		for _, v := range r.Verdicts() {
			if v.InForce(at) && v.Mode == verdict.Enforce && (api == "" || v.Covers(api)) {
				all = append(all, Left{v.Rule, v.Public, v.Key, v.APIs, v.Limit, v.Count, v.Per.Duration(), v.Since.Time(), v.Until.Time(), at.Time()})
			}
		}
		return true
	})
	slices.SortFunc(all, func(a, b Left) int {
		return cmp.Or(cmp.Compare(a.Left(), b.Left()), b.Until.Compare(a.Until), cmp.Compare(a.Rule, b.Rule))
	})
	return all
}

// MayTell reports whether Left could find something for these dimensions and any API. With it a
// middleware need not name the API of keys of which nothing is known.
func (q *quotas) MayTell(dims []event.Dim) (found bool) {
	switch {
	case !q.tells():
		return false
	case q.left.View().OfAPI():
		return true
	}
	q.left.Each("", dims, func(index.Record) bool {
		found = true
		return false
	})
	return found
}

// tells reports whether what the table holds of what is left may be told.
func (q *quotas) tells() bool {
	return q.left.Len() > 0 && q.table.mode.bits.Load() == 0 && !q.table.Stale()
}

// Quotas returns how many numbers of what is left the table holds, including those of ended windows
// that are not swept yet, and the memory that they take.
func (q *quotas) Quotas() (entries, bytes int) { return q.left.Len(), q.left.Bytes() }
