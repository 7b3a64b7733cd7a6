package windows

import "github.com/tallygate/tallygate/event"

// A hopping counter's state is the head, and unless nothing is held: the count of the first window
// that holds the latest time, how many panes the newest one lies before the latest time's, how many
// the oldest one lies before the newest, how many bytes the panes take that only ended windows have,
// and if there are such and others, how many panes the first of the others lies behind the oldest.
// Then the panes follow that have an amount, oldest first: an amount, and the difference to the next
// one. As with sliding panes, most events touch the two ends only.
const formatHopping = 0x19

// hops is the part of a state ahead of the panes' amounts.
type hops struct {
	latest event.Micros
	count  event.Decimal // 0: there are no panes from first on

	oldest, first, newest int64 // panes; first is the first one of the current windows
	body, cut             int   // where the amounts of oldest and first begin
}

func readHops(s *Spec, state []byte) hops {
	h := hops{latest: getLatest(state), body: headBytes, cut: headBytes}
	if len(state) == headBytes {
		return h
	}
	var n int
	h.count, n = readAmount(state[h.body:])
	h.body += n
	back, n := uvarint(state[h.body:])
	h.body += n
	span, n := uvarint(state[h.body:])
	h.body += n
	ended, n := uvarint(state[h.body:])
	h.body += n
	h.newest = hopOf(s, h.latest) - int64(back)
	h.oldest = h.newest - int64(span)
	h.first = h.oldest
	if ended > 0 && h.count > 0 {
		apart, n := uvarint(state[h.body:])
		h.body += n
		h.first += int64(apart)
	}
	h.cut = h.body + int(ended)
	return h
}

// appendHops appends what comes ahead of the amounts, but for the head; now is the latest time's pane.
func appendHops(h *hops, b []byte, now int64) []byte {
	b = appendAmount(b, h.count)
	b = appendUvarint(b, uint64(now-h.newest))
	b = appendUvarint(b, uint64(h.newest-h.oldest))
	b = appendUvarint(b, uint64(h.cut-h.body))
	if h.cut > h.body && h.count > 0 {
		b = appendUvarint(b, uint64(h.first-h.oldest))
	}
	return b
}

// move leaves the panes before a given one to the ended windows.
func (h *hops) move(state []byte, before int64) {
	if h.count > 0 {
		h.cut, h.first, h.count = leave(state, h.cut, h.first, h.count, before)
	}
}

// dropHops finds the first pane that is not before a given one. Its amount begins at pos, which is
// the state's end when there is none.
func dropHops(state []byte, pos int, pane, before int64) (int, int64) {
	for pos < len(state) && pane < before {
		_, n := readAmount(state[pos:])
		if pos += n; pos < len(state) {
			gap, n := uvarint(state[pos:])
			pos += n
			pane += int64(gap)
		}
	}
	return pos, pane
}

// writeHops adds n to a pane that is held, and writes what follows from the latest time.
func writeHops(s *Spec, state []byte, h hops, pane int64, n event.Decimal) []byte {
	now := hopOf(s, h.latest)
	current := now - hopsOf(s) + 1 // the first pane of the windows that hold the latest time
	h.move(state, current)
	from, oldest := dropHops(state, h.body, h.oldest, keptFrom(s, now))
	next := hops{count: h.count, oldest: oldest, first: h.first, newest: h.newest, body: from, cut: h.cut}
	was := len(state)
	switch {
	case from == was:
		next = hops{oldest: pane, newest: pane, body: from}
		state = appendAmount(state, n)
	case n == 0:
	case pane < h.newest:
		state = insertPane(state, from, oldest, pane, n)
		next.oldest = min(oldest, pane)
	default:
		state = addLast(state, pane-h.newest, n)
		next.newest = pane
	}
	switch {
	case n == 0 && from == was:
		return state[:headBytes]
	case n == 0:
	case h.count > 0 && pane >= h.first:
		next.count = h.count.Plus(n)
	case h.count > 0 && pane < current:
		next.cut += len(state) - was
	default:
		next.split(state, current)
	}
	var buf [5 * maxVarint]byte
	return splice(state, headBytes, from, appendHops(&next, buf[:0], now))
}

// split finds the first pane that is not before a given one, and counts from there.
func (h *hops) split(state []byte, before int64) {
	h.cut, h.first = dropHops(state, h.body, h.oldest, before)
	if h.count = 0; h.cut < len(state) {
		h.count = sumPanes(state[h.cut:])
	}
}

// mostOf is the greatest count of the windows from one pane to another, each of which begins there.
func mostOf(s *Spec, state []byte, h hops, from, to int64) event.Decimal {
	pos, pane := dropHops(state, h.body, h.oldest, from)
	in, out := paneAt(state, pos, pane), paneAt(state, pos, pane)
	var sum, most wide
	for first := from; in.ok && in.pane < to+hopsOf(s); in.next() {
		for first = max(first, in.pane-hopsOf(s)+1); out.pane < first; out.next() {
			sum = sum.minus(wide{lo: uint64(out.amount)})
		}
		if sum = sum.plus(wide{lo: uint64(in.amount)}); most.less(sum) {
			most = sum
		}
	}
	if most.hi > 0 {
		return event.MaxDecimal
	}
	return event.Decimal(min(most.lo, uint64(event.MaxDecimal)))
}

// panesFrom goes through panes, oldest first.
type panesFrom struct {
	ok     bool // there is one
	pane   int64
	amount event.Decimal
	rest   []byte // behind its amount
}

// paneAt begins with the pane whose amount begins at pos, if that is not the state's end.
func paneAt(state []byte, pos int, pane int64) panesFrom {
	if pos == len(state) {
		return panesFrom{}
	}
	amount, n := readAmount(state[pos:])
	return panesFrom{ok: true, pane: pane, amount: amount, rest: state[pos+n:]}
}

func (p *panesFrom) next() {
	if p.ok = len(p.rest) > 0; !p.ok {
		return
	}
	gap, n := uvarint(p.rest)
	amount, size := readAmount(p.rest[n:])
	p.pane, p.amount, p.rest = p.pane+int64(gap), amount, p.rest[n+size:]
}

// hopParts are the starts of the panes, oldest first.
func hopParts(s *Spec, state []byte) (parts []part) {
	h := readHops(s, state)
	for p := paneAt(state, h.body, h.oldest); p.ok; p.next() {
		parts = append(parts, part{hopStart(s, p.pane), p.amount})
	}
	return parts
}

// hopsOf returns the number of windows that hold a moment, which is that of each window's panes.
func hopsOf(s *Spec) int64 { return int64(s.Per / s.Every) }

// hopOf is the pane that a time is in, counted from the epoch plus Offset. It is also the last one of
// the windows that hold the time: window k begins where pane k does.
func hopOf(s *Spec, at event.Micros) int64 { return int64(floorDiv(at-s.Offset, s.Every)) }

func hopStart(s *Spec, pane int64) event.Micros { return event.Micros(pane)*s.Every + s.Offset }

// hopHold returns the time for which a window is held past its end.
func hopHold(s *Spec) event.Micros { return min(s.Per, s.Lateness) }

// heldFrom is the first window that is held.
func heldFrom(s *Spec, latest event.Micros) int64 {
	return hopOf(s, latest-hopHold(s)) - hopsOf(s) + 1
}

// keptFrom is the first pane that is kept: one of a window that is held when the pane now begins.
func keptFrom(s *Spec, now int64) int64 { return heldFrom(s, hopStart(s, now)) }

// hopSpent returns the moment from which the last window of a pane is not held any more.
func hopSpent(s *Spec, newest int64) event.Micros {
	return hopStart(s, newest) + s.Per + hopHold(s)
}
