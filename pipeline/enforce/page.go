package enforce

import (
	"container/heap"
	"slices"
	"strings"
	"unsafe"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/index"
	"github.com/tallygate/tallygate/verdict"
)

// List returns up to limit verdicts in force whose record keys begin with prefix and come after
// cursor, in the order of their record keys; all of them when limit is negative. next is the cursor
// of the next page, "" when there is none. A page costs the memory of one page and a walk over the
// whole table, in steps between which the feed continues.
func (t *Table) List(prefix, cursor string, limit int) (page []*verdict.Verdict, next string) {
	p := pager{prefix: prefix, cursor: cursor, limit: limit, at: t.cfg.now()}
	t.index.Walk(p.add, p.reset)
	slices.SortFunc(p.found, func(a, b paged) int { return strings.Compare(a.name, b.name) })
	if p.more && limit > 0 {
		next = p.found[len(p.found)-1].name
	}
	for _, f := range p.found {
		page = append(page, f.verdict)
	}
	return page, next
}

// pager collects a page as a heap. The verdict with the last name is on top, so it is replaced when
// one that belongs before it is found.
type pager struct {
	prefix, cursor string
	limit          int
	at             event.Micros
	found          []paged
	more           bool // there are verdicts after the page

	text []byte      // scratch
	key  []event.Dim // scratch
}

type paged struct {
	name    string // its record key
	verdict *verdict.Verdict
}

func (p *pager) Len() int           { return len(p.found) }
func (p *pager) Less(i, j int) bool { return p.found[i].name > p.found[j].name }
func (p *pager) Swap(i, j int)      { p.found[i], p.found[j] = p.found[j], p.found[i] }
func (p *pager) Push(x any)         { p.found = append(p.found, x.(paged)) }
func (p *pager) Pop() any {
	last := p.found[len(p.found)-1]
	p.found = p.found[:len(p.found)-1]
	return last
}

func (p *pager) reset() { p.found, p.more = nil, false }

// add takes the verdicts of a record that belong on the page. For others it allocates nothing.
func (p *pager) add(r index.Record) {
	p.key = r.AppendKey(p.key[:0])
	n := 0
	r.Each(func(c *index.Class, since, until event.Micros) {
		if since <= p.at && p.at < until {
			p.consider(r, n, c)
		}
		n++
	})
}

// consider takes the nth verdict of a record, which is of class c, if it belongs on the page.
func (p *pager) consider(r index.Record, n int, c *index.Class) {
	named := verdict.Verdict{Key: p.key, Rule: c.Verdict.Rule, State: c.Verdict.State}
	p.text = verdict.AppendRecordKey(p.text[:0], &named)
	name := unsafe.String(unsafe.SliceData(p.text), len(p.text)) // valid until the next one
	if name <= p.cursor || !strings.HasPrefix(name, p.prefix) {
		return
	}
	full := p.limit >= 0 && len(p.found) >= p.limit
	if full && (p.limit == 0 || p.found[0].name < name) {
		p.more = true
		return
	}
	if full {
		heap.Pop(p)
		p.more = true
	}
	heap.Push(p, paged{strings.Clone(name), r.Verdicts()[n]})
}
