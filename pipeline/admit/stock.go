package admit

import (
	"sync/atomic"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/rules"
)

// stock is permits of a key that were granted ahead, in one answer. They are taken without a lock: who
// counts taken up to an index has the permit there.
type stock struct {
	ids       []string
	partition int32
	key       string
	turn      uint64         // of the key that they are for
	sent      protocol.Clock // the question
	ahead     event.Micros   // so long behind sent they may be used
	at        event.Micros
	by        *rules.Limit
	number    Numbers       // before the first of them
	amount    event.Decimal // that each takes of by

	taken atomic.Int64 // from len(ids) on none is left
	noted int64        // of taken: they are among the uses of the key, whose part is locked
	made  []atomic.Pointer[[permitsAtOnce]Permit]
}

// permitsAtOnce is the number of Permits in one allocation. They stay as long as one of them is held.
const permitsAtOnce = 16

func newStock(one *ask, g *protocol.Answer, ahead event.Micros) *stock {
	s := &stock{
		ids: g.IDs[1:], partition: one.Partition, key: one.Key, turn: one.turn, sent: one.sent, ahead: ahead, at: g.At,
		amount: one.Wants[g.Decides].Amount,
	}
	s.number, s.by = one.numbers(g, true)
	s.made = make([]atomic.Pointer[[permitsAtOnce]Permit], (len(s.ids)+permitsAtOnce-1)/permitsAtOnce)
	return s
}

// left counts the Permits in stock; s may be nil.
func (s *stock) left() int {
	if s == nil {
		return 0
	}
	return max(0, len(s.ids)-int(s.taken.Load()))
}

// over tells whether they may be used no longer: by the clock that says more.
func (s *stock) over(now protocol.Clock) bool {
	return max(now.Wall-s.sent.Wall, now.Mono-s.sent.Mono) >= s.ahead
}

// take takes a permit, which is not Admitted yet; nil: none is left.
func (s *stock) take(a *Admitter) *Permit {
	if s.left() == 0 {
		return nil
	}
	n := s.taken.Add(1)
	if n > int64(len(s.ids)) {
		return nil
	}
	i := int(n - 1)
	made := s.made[i/permitsAtOnce].Load()
	if made == nil {
		made = s.make(i / permitsAtOnce)
	}
	if i%permitsAtOnce == permitsAtOnce-1 { // one who is slower makes another piece
		s.made[i/permitsAtOnce].Store(nil)
	}
	p, id := &made[i%permitsAtOnce], s.ids[i]
	p.a, p.ID = a, id
	p.first = hold{partition: s.partition, key: s.key, id: id}
	p.Event = event.Permit{ID: id, At: s.at}
	p.By, p.Key, p.Numbers = s.by, s.key, s.number
	p.Numbers.Remaining = max(0, s.number.Remaining-event.Decimal(n)*s.amount)
	return p
}

func (s *stock) make(piece int) *[permitsAtOnce]Permit {
	made := new([permitsAtOnce]Permit)
	if s.made[piece].CompareAndSwap(nil, made) {
		return made
	}
	if other := s.made[piece].Load(); other != nil {
		return other
	}
	return made
}

// end takes all that are left, and returns their ids. The key's part is locked.
func (s *stock) end() []string {
	from := s.taken.Swap(int64(len(s.ids)))
	left := s.ids[min(int(from), len(s.ids)):]
	s.noted += int64(len(left)) // they are no uses
	return left
}

// uses returns how many were taken since it was called last. The key's part is locked.
func (s *stock) uses() int {
	n := min(s.taken.Load(), int64(len(s.ids))) - s.noted
	s.noted += n
	return int(n)
}
