package admit

import (
	"hash/maphash"
	"strings"
	"sync/atomic"

	"github.com/tallygate/tallygate/event"
)

// quickSlots is the number of requests that quick remembers; a power of two.
const quickSlots = 4096

// maxQuick bounds the length of a dimension's value that quick remembers.
const maxQuick = 512

// quick remembers which permits requests took that were granted ahead, so that the next such request
// takes one without asking the rules again. They are requests of one dimension and no attributes: what
// they want follows from that and the rules alone.
type quick [quickSlots]atomic.Pointer[met]

// met is such a request. It never changes.
type met struct {
	page *page
	api  string
	dim  event.Dim
	cost event.Decimal

	k    *tracked
	turn uint64 // of k
}

// plain tells whether quick is for a request.
func (r *Request) plain() bool { return r.ID == "" && len(r.Dims) == 1 && len(r.Attrs) == 0 }

// slot returns the place of a request's memory.
func (s *spares) slot(r *Request) *atomic.Pointer[met] {
	return &s.quick[(maphash.String(s.seed, r.Dims[0].Value)+maphash.String(s.seed, r.API))%quickSlots]
}

// meet remembers a request that took a permit. The part is locked.
func (t *attempt) meet(p *page, k *tracked) {
	r := &t.r
	if k.uses < several || p.instance != nil || t.a.cfg.Events != nil || t.inDoubt != "" || !r.plain() {
		return
	}
	if len(r.API) > event.MaxAPI || len(r.Dims[0].Value) > maxQuick {
		return
	}
	dim := event.Dim{Name: strings.Clone(r.Dims[0].Name), Value: strings.Clone(r.Dims[0].Value)}
	t.a.spares.slot(r).Store(&met{page: p, api: strings.Clone(r.API), dim: dim, cost: r.Cost, k: k, turn: k.turn})
}

// quickly takes a permit that was granted ahead for a request that was met; nil: it goes the whole way.
func (a *Admitter) quickly(p *page, r *Request) *Permit {
	m := a.spares.slot(r).Load()
	if m == nil || m.page != p || m.api != r.API || m.dim != r.Dims[0] || m.cost != r.Cost {
		return nil
	}
	st := m.k.stock.Load()
	if st == nil || st.turn != m.turn || st.over(a.now()) {
		return nil
	}
	permit := st.take(a)
	if permit == nil {
		return nil
	}
	permit.Admitted = true
	a.counts.ahead.Add(1)
	permit.count(&a.counts)
	return permit
}
