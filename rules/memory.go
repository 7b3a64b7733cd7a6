package rules

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/windows"
)

// memory is what a limit with refunds remembers of the events it counted, oldest arrival first.
// On the wire a uvarint count, then of each event: the id's hash, 8 bytes; the time less that of
// the one before it, a varint; what it counted, its cost, and what was taken back, uvarints.
type memory []remembered

type remembered struct {
	id     uint64
	at     event.Micros
	amount event.Decimal // what it counted
	cost   event.Decimal
	taken  event.Decimal // what was taken back of it
}

const rememberedBytes = 8 + 4*binary.MaxVarintLen64

func (m memory) read(r *varints) memory {
	n := r.uvarint()
	if n > windows.Remembered {
		r.bad = true
	}
	var at event.Micros
	for ; n > 0 && !r.bad; n-- {
		e := remembered{id: r.fixed()}
		at += event.Micros(r.varint())
		e.at, e.amount, e.cost, e.taken = at, event.Decimal(r.uvarint()), event.Decimal(r.uvarint()), event.Decimal(r.uvarint())
		m = append(m, e)
	}
	return m
}

func (m memory) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(m)))
	var at event.Micros
	for _, e := range m {
		dst = binary.LittleEndian.AppendUint64(dst, e.id)
		dst = binary.AppendVarint(dst, int64(e.at-at))
		dst = binary.AppendUvarint(dst, uint64(e.amount))
		dst = binary.AppendUvarint(dst, uint64(e.cost))
		dst = binary.AppendUvarint(dst, uint64(e.taken))
		at = e.at
	}
	return dst
}

func (m memory) check() error {
	for _, e := range m {
		if e.amount < 0 || e.cost < 0 || e.taken < 0 || e.taken > e.amount || e.at < event.MinTime || e.at > event.MaxTime {
			return fmt.Errorf("%w: a remembered event", errState)
		}
	}
	return nil
}

// remember adds an event, and forgets what no window holds any more, and the oldest beyond
// windows.Remembered.
func (m memory) remember(l *Limit, window []byte, e remembered) memory {
	kept := m[:0]
	for i, old := range m {
		if l.Window.Holds(window, old.at) && len(m)-i < windows.Remembered {
			kept = append(kept, old)
		}
	}
	if !l.Window.Holds(window, e.at) {
		return kept
	}
	return append(kept, e)
}

// find returns the newest event of an id that a window still holds.
func (m memory) find(l *Limit, window []byte, id uint64) *remembered {
	for i := len(m) - 1; i >= 0; i-- {
		if m[i].id == id && l.Window.Holds(window, m[i].at) {
			return &m[i]
		}
	}
	return nil
}

// back is how much a refund of cost takes back: cost times what one unit of the event's own cost
// counted, all refunds of it together at most what it counted. A count gives back whole numbers,
// rounded down, so that it may be nothing.
func (e *remembered) back(cost event.Decimal, whole bool) event.Decimal {
	if e.cost <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(e.amount), uint64(cost))
	back := e.amount - e.taken
	if hi < uint64(e.cost) {
		if q, _ := bits.Div64(hi, lo, uint64(e.cost)); q < uint64(back) {
			back = event.Decimal(q)
		}
	}
	if whole {
		back -= back % event.One
	}
	return back
}
