package windows

import (
	"math/bits"

	"github.com/tallygate/tallygate/event"
)

// A pane counter's state is the head, and unless nothing is in the window: the total, how
// many panes the newest one lies before the latest time's, how many the oldest one lies
// before the newest, and the panes that have an amount, oldest first: the oldest's amount,
// then of each the difference to the one before it, and its amount. So the common events
// touch the two ends only: one that falls into the newest pane or opens the next one.
const formatPanes = 0x14

// paneHead is the part of a state ahead of the panes' amounts, which begin at body.
type paneHead struct {
	latest         event.Micros
	total          event.Decimal // 0: there are no panes
	oldest, newest int64         // indexes since the epoch
	body           int
}

// writePanes adds n to a pane, and lets what comes ahead of the amounts follow; these begin
// at cut.
func writePanes(s *Spec, state []byte, p paneHead, cut int, pane int64, n event.Decimal) []byte {
	if p.total == 0 {
		state = state[:headBytes]
		if n == 0 {
			return state
		}
		p.oldest, p.newest, p.total = pane, pane, n
		return appendAmount(appendPanes(s, state, p), n)
	}
	was := p
	p.total = p.total.Plus(n)
	p.oldest, p.newest = min(p.oldest, pane), max(p.newest, pane)
	if n == 0 {
		p.oldest, p.newest = was.oldest, was.newest
	}
	var buf [3 * maxVarint]byte
	state = splice(state, headBytes, cut, appendPanes(s, buf[:0], p))
	if n == 0 {
		return state
	}
	if pane < was.newest {
		return insertPane(state, readPanes(s, state).body, was.oldest, pane, n)
	}
	return addLast(state, pane-was.newest, n)
}

// addLast adds n to the newest pane, or to a new one so many panes behind it.
func addLast(state []byte, behind int64, n event.Decimal) []byte {
	if behind > 0 {
		return appendAmount(appendUvarint(state, uint64(behind)), n)
	}
	last := lastVarint(state)
	amount, _ := readAmount(state[last:])
	return appendAmount(state[:last], amount.Plus(n))
}

// insertPane adds n to a pane before the newest one. The amounts begin at body with that of
// the pane oldest.
func insertPane(state []byte, body int, oldest, pane int64, n event.Decimal) []byte {
	var buf [4 * maxVarint]byte
	if pane < oldest {
		repl := appendAmount(buf[:0], n)
		return splice(state, body, body, appendUvarint(repl, uint64(oldest-pane)))
	}
	at := oldest
	for pos := body; ; {
		amount, size := readAmount(state[pos:])
		if at == pane {
			return splice(state, pos, pos+size, appendAmount(buf[:0], amount.Plus(n)))
		}
		pos += size
		gap, size := uvarint(state[pos:])
		if at+int64(gap) > pane {
			repl := appendUvarint(buf[:0], uint64(pane-at))
			repl = appendAmount(repl, n)
			repl = appendUvarint(repl, uint64(at+int64(gap)-pane))
			return splice(state, pos, pos+size, repl)
		}
		at += int64(gap)
		pos += size
	}
}

// dropPanes finds the panes that do not count at the latest time. The amounts of the others
// begin at cut.
func dropPanes(s *Spec, state []byte, p paneHead) (_ paneHead, cut int) {
	if cut = p.body; p.total > 0 {
		cut, p.oldest, p.total = leave(state, cut, p.oldest, p.total, paneOf(s, p.latest-s.Per))
	}
	return p, cut
}

// leave leaves out the panes before a given one. The amounts of the others begin at pos with that of
// pane, and make up total; 0, and at the state's end, when there are none.
func leave(state []byte, pos int, pane int64, total event.Decimal, before int64) (int, int64, event.Decimal) {
	saturated := total == event.MaxDecimal
	for pane < before {
		amount, n := readAmount(state[pos:])
		pos += n
		if pos == len(state) {
			return pos, pane, 0
		}
		total -= amount
		gap, n := uvarint(state[pos:])
		pos += n
		pane += int64(gap)
		if saturated {
			total = sumPanes(state[pos:])
			saturated = total == event.MaxDecimal
		}
	}
	return pos, pane, total
}

// appendPanes appends what comes ahead of the amounts, but for the head.
func appendPanes(s *Spec, b []byte, p paneHead) []byte {
	b = appendAmount(b, p.total)
	b = appendUvarint(b, uint64(paneOf(s, p.latest)-p.newest))
	return appendUvarint(b, uint64(p.newest-p.oldest))
}

func readPanes(s *Spec, state []byte) paneHead {
	p := paneHead{latest: getLatest(state), body: headBytes}
	if len(state) == headBytes {
		return p
	}
	var n int
	p.total, n = readAmount(state[p.body:])
	p.body += n
	back, n := uvarint(state[p.body:])
	p.body += n
	span, n := uvarint(state[p.body:])
	p.body += n
	p.newest = paneOf(s, p.latest) - int64(back)
	p.oldest = p.newest - int64(span)
	return p
}

// sumPanes adds up the amounts, the first of which b begins with.
func sumPanes(b []byte) event.Decimal {
	amount, pos := readAmount(b)
	total := amount
	for pos < len(b) {
		_, n := uvarint(b[pos:])
		pos += n
		amount, n = readAmount(b[pos:])
		pos += n
		total = total.Plus(amount)
	}
	return total
}

// wideSum adds up the amounts without saturating.
func wideSum(b []byte) (hi, lo uint64) {
	amount, pos := readAmount(b)
	lo = uint64(amount)
	for pos < len(b) {
		_, n := uvarint(b[pos:])
		pos += n
		amount, n = readAmount(b[pos:])
		pos += n
		var carry uint64
		lo, carry = bits.Add64(lo, uint64(amount), 0)
		hi += carry
	}
	return hi, lo
}

// lastVarint finds the beginning of the state's last varint: behind the last byte but itself that ends one.
func lastVarint(state []byte) int {
	i := len(state) - 1
	for state[i-1] >= 0x80 {
		i--
	}
	return i
}

// maxPanes bounds the panes that can count at one time: those that Per covers, one that it covers in part, and the
// one of the latest time.
func maxPanes(s *Spec) int { return int(s.Per/s.Resolution) + 2 }
