package admit

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/rules"
)

const (
	spareParts  = 16
	maxTracked  = 4096 // keys of a part
	several     = 3    // so often a key is asked for before more is asked at once
	maxAhead    = 250  // permits that are asked for at once
	spareChecks = 200 * time.Millisecond
)

// spares are permits that were granted ahead, by key, and how often keys are asked for.
type spares struct {
	cancels *cancels
	seed    maphash.Seed
	turns   atomic.Uint64
	parts   [spareParts]sparePart
	quick   quick
}

type sparePart struct {
	mu     sync.Mutex
	keys   map[string]*tracked
	closed bool     // nothing is kept any more: nobody would give it back
	_      [64]byte // no part shares a cache line with the next one
}

// tracked is a key that permits may be asked for ahead.
type tracked struct {
	key   string
	turn  uint64 // nobody else's, and another one when v or wants change
	v     *version
	wants []rules.Want // what its permits are for
	ahead event.Micros

	stock atomic.Pointer[stock] // nil: none was granted

	began  event.Micros // of the period that uses are of
	uses   int
	before int  // of the period before
	room   int  // that there was below half of the limit
	asking bool // more than one
}

func (s *spares) init(c *cancels) {
	s.cancels, s.seed = c, maphash.MakeSeed()
	for i := range s.parts {
		s.parts[i].keys = map[string]*tracked{}
	}
}

func (s *spares) part(key []byte) *sparePart { return &s.parts[maphash.Bytes(s.seed, key)%spareParts] }

// spare takes a permit that was granted ahead. Without one it returns how many to ask for.
func (t *attempt) spare(p *page, v *version, wants []rules.Want, ahead event.Micros, now protocol.Clock) (*Permit, int) {
	s := &t.a.spares
	part := s.part(wants[0].Key)
	part.mu.Lock()
	defer part.mu.Unlock()
	k := part.keys[string(wants[0].Key)]
	if k == nil {
		if len(part.keys) < maxTracked {
			k = &tracked{key: string(wants[0].Key)}
			part.keys[k.key] = k
			k.begin(s.turns.Add(1), v, wants, ahead, now)
			t.turn = k.turn
		}
		return nil, 1
	}
	if k.v != v || !sameWants(k.wants, wants) {
		s.drop(k)
		k.begin(s.turns.Add(1), v, wants, ahead, now)
		t.turn = k.turn
		return nil, 1
	}
	k.note(now, 1)
	t.turn = k.turn
	permit := s.atHand(k, t.a, now)
	if permit == nil {
		return nil, k.most()
	}
	t.admit(permit)
	t.meet(p, k)
	t.a.counts.ahead.Add(1)
	return permit, 0
}

func sameWants(a, b []rules.Want) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Limit != b[i].Limit || a[i].Amount != b[i].Amount || a[i].Threshold != b[i].Threshold || a[i].AnyTier != b[i].AnyTier {
			return false
		}
	}
	return true
}

// begin tracks a key anew.
func (k *tracked) begin(turn uint64, v *version, wants []rules.Want, ahead event.Micros, now protocol.Clock) {
	k.turn, k.v, k.wants, k.ahead = turn, v, append(k.wants[:0], wants...), ahead
	k.began, k.uses, k.before, k.room, k.asking = now.Mono, 1, 0, 0, false
	for i := range k.wants {
		k.wants[i].Key = nil // it is valid for a moment only
	}
}

// note notes so many uses, and those of the stock that were not noted yet.
func (k *tracked) note(now protocol.Clock, n int) {
	if st := k.stock.Load(); st != nil {
		n += st.uses()
	}
	if n == 0 {
		return
	}
	k.uses += n
	if since := now.Mono - k.began; since >= k.ahead {
		k.before = int(event.Micros(k.uses) * k.ahead / since)
		k.began, k.uses = now.Mono, 0
	}
}

// atHand takes a permit that is at hand, if there is one. The part is locked.
func (s *spares) atHand(k *tracked, a *Admitter, now protocol.Clock) *Permit {
	switch st := k.stock.Load(); {
	case st == nil:
		return nil
	case st.over(now):
		s.drop(k)
		return nil
	default:
		return st.take(a)
	}
}

// most returns the number of permits to ask for.
func (k *tracked) most() int {
	n := min(max(k.uses, k.before), k.room, maxAhead)
	if n < several || k.asking {
		return 1
	}
	return n
}

// asks notes that several permits of a key are asked for now. It reports false where that is so already,
// or where none may be kept.
func (s *spares) asks(one *ask) bool {
	part := s.part([]byte(one.Key))
	part.mu.Lock()
	defer part.mu.Unlock()
	k := part.keys[one.Key]
	if part.closed || k == nil || k.turn != one.turn || k.asking {
		return false
	}
	k.asking = true
	return true
}

// answered takes in what was granted: all but the first permit are spare.
func (s *spares) answered(one *ask, g *protocol.Answer) {
	part := s.part([]byte(one.Key))
	part.mu.Lock()
	defer part.mu.Unlock()
	k := part.keys[one.Key]
	if part.closed || k != nil && k.turn != one.turn {
		k = nil // what was asked for is not what requests want now
	}
	more := g.IDs[1:]
	if k != nil && len(one.IDs) > 1 {
		k.asking = false
	}
	if k == nil || g.Decides < 0 {
		if len(more) > 0 {
			s.cancels.add(one.Partition, one.Key, more...)
		}
		return
	}
	w := &one.Wants[g.Decides]
	k.room = int(max(0, (g.Limit/2-g.Used-event.Decimal(len(g.IDs))*w.Amount)/w.Amount))
	if len(more) == 0 {
		return
	}
	s.drop(k)
	k.stock.Store(newStock(one, g, k.ahead))
}

// failed notes that nothing came of asking for more than one.
func (s *spares) failed(one *ask) {
	part := s.part([]byte(one.Key))
	part.mu.Lock()
	defer part.mu.Unlock()
	if k := part.keys[one.Key]; k != nil && k.turn == one.turn {
		k.asking, k.room = false, 0
	}
}

// drop gives back what is left of a key. The part is locked.
func (s *spares) drop(k *tracked) {
	st := k.stock.Load()
	if st == nil {
		return
	}
	if left := st.end(); len(left) > 0 {
		s.cancels.add(st.partition, st.key, left...)
	}
	k.uses += st.uses()
	k.stock.Store(nil)
}

// run gives back what was not used in time, until ctx ends, and then all.
func (s *spares) run(ctx context.Context, clock func() protocol.Clock) {
	tick := time.NewTicker(spareChecks)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.sweep(clock(), false)
		case <-ctx.Done():
			s.sweep(clock(), true)
			return
		}
	}
}

func (s *spares) sweep(now protocol.Clock, all bool) {
	for i := range s.parts {
		part := &s.parts[i]
		part.mu.Lock()
		part.closed = part.closed || all
		for key, k := range part.keys {
			k.note(now, 0)
			st := k.stock.Load()
			if st != nil && (all || st.over(now)) {
				s.drop(k)
			}
			if st.left() == 0 && !k.asking && now.Mono-k.began > 3*k.ahead {
				delete(part.keys, key)
			}
		}
		part.mu.Unlock()
	}
}
