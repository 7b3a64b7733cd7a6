package keystate

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/windows"
)

// memory lists the events that a limit with refunds counted, oldest arrival first. On the wire a uvarint count, then
// of each event: the id's hash, 8 bytes; the time less that of the one before it, a varint; what it counted, its
// cost, and what was taken back, uvarints.
type memory []Remembered

// Remembered is one of these events.
type Remembered struct {
	ID     uint64
	At     event.Micros
	Amount event.Decimal // what it counted
	Cost   event.Decimal
	Taken  event.Decimal // what was taken back of it
}

// RememberedBytes is the most that one takes.
const RememberedBytes = 8 + 4*binary.MaxVarintLen64

func (m memory) read(r *varints) memory {
	n := r.uvarint()
	if n > windows.Remembered {
		r.bad = true
	}
	var at event.Micros
	for ; n > 0 && !r.bad; n-- {
		e := Remembered{ID: r.fixed()}
		at += event.Micros(r.varint())
		e.At, e.Amount, e.Cost, e.Taken = at, event.Decimal(r.uvarint()), event.Decimal(r.uvarint()), event.Decimal(r.uvarint())
		m = append(m, e)
	}
	return m
}

func (m memory) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(m)))
	var at event.Micros
	for _, e := range m {
		dst = binary.LittleEndian.AppendUint64(dst, e.ID)
		dst = binary.AppendVarint(dst, int64(e.At-at))
		dst = binary.AppendUvarint(dst, uint64(e.Amount))
		dst = binary.AppendUvarint(dst, uint64(e.Cost))
		dst = binary.AppendUvarint(dst, uint64(e.Taken))
		at = e.At
	}
	return dst
}

func (m memory) check() error {
	for _, e := range m {
		if e.Amount < 0 || e.Cost < 0 || e.Taken < 0 || e.Taken > e.Amount || e.At < event.MinTime || e.At > event.MaxTime {
			return fmt.Errorf("%w: a remembered event", ErrMalformed)
		}
	}
	return nil
}

// Remember adds an event, and forgets what no window holds any more, and the oldest beyond
// windows.Remembered.
func (m memory) Remember(w *windows.Spec, window []byte, e Remembered) memory {
	kept := m[:0]
	for i, old := range m {
		if w.Holds(window, old.At) && len(m)-i < windows.Remembered {
			kept = append(kept, old)
		}
	}
	if !w.Holds(window, e.At) {
		return kept
	}
	return append(kept, e)
}

// Find returns the newest event of an id that a window still holds.
func (m memory) Find(w *windows.Spec, window []byte, id uint64) *Remembered {
	for i := len(m) - 1; i >= 0; i-- {
		if m[i].ID == id && w.Holds(window, m[i].At) {
			return &m[i]
		}
	}
	return nil
}

// Back returns the amount that a refund of cost takes back: cost times what one unit of the event's own cost counted,
// all refunds of it together at most what it counted. A count gives back whole numbers, rounded down, so that it may
// be nothing.
func (e *Remembered) Back(cost event.Decimal, whole bool) event.Decimal {
	if e.Cost <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(e.Amount), uint64(cost))
	back := e.Amount - e.Taken
	if hi < uint64(e.Cost) {
		if q, _ := bits.Div64(hi, lo, uint64(e.Cost)); q < uint64(back) {
			back = event.Decimal(q)
		}
	}
	if whole {
		back -= back % event.One
	}
	return back
}
