package windows

import (
	"math/bits"
	"slices"

	"github.com/tallygate/tallygate/event"
)

// panes counts a sliding window by panes, each of which counts until all of it has slid out. See
// panes_form.go for its state.
type panes struct {
	slides
	amounts
	refunds
}

// maxBytes: one pane more than can count, on the way. Panes far apart take more bytes
// each, but leave out more panes than these.
func (panes) maxBytes(s *Spec) int {
	return headBytes + 3*maxVarint + (maxPanes(s)+1)*(1+maxVarint)
}

func (panes) formats() (oldest, newest byte) { return formatPanes, formatPanes }

func (panes) check(s *Spec, state []byte) error {
	r := reader{rest: state}
	latest := r.head()
	if r.err == nil && !r.more() {
		return nil
	}
	most := uint64(maxPanes(s))
	total := r.amount(1)
	newest := paneOf(s, latest) - int64(r.number(0, most))
	pane := newest - int64(r.number(0, most))
	if r.err == nil && paneEnds(s, pane) <= latest {
		r.fail(errTime)
	}
	sum := r.amount(1)
	for r.more() {
		pane += int64(r.number(1, most))
		sum = sum.Plus(r.amount(1))
	}
	switch {
	case r.err != nil:
		return r.err
	case pane != newest:
		return errOrder
	case sum != total:
		return errTotal
	}
	return r.end()
}

func (panes) add(s *Spec, state []byte, at event.Micros, n event.Decimal) ([]byte, Added) {
	if len(state) == 0 {
		state = newHead(state, formatPanes, at)
	}
	p := readPanes(s, state)
	if at <= p.latest-s.Per {
		return state, Added{Late: true, Count: p.total}
	}
	cut := p.body
	if at > p.latest {
		p.latest = at
		putLatest(state, at)
		p, cut = dropPanes(s, state, p)
	}
	state = writePanes(s, state, p, cut, paneOf(s, at), n)
	return state, Added{Count: p.total.Plus(n)}
}

// addSpent adds to the newest pane, or opens a newer one; some, but not all, may end by it.
func (panes) addSpent(s *Spec, state []byte, at event.Micros, n event.Decimal) (_ []byte, added Added, spent event.Micros, ok bool) {
	latest := getLatest(state)
	if at < latest || len(state) == headBytes {
		return state, Added{}, 0, false
	}
	total, cut := readAmount(state[headBytes:])
	cut += headBytes
	back, size := uvarint(state[cut:])
	cut += size
	span, size := uvarint(state[cut:])
	cut += size
	pane := paneOf(s, latest)
	newest := pane - int64(back)
	oldest := newest - int64(span)
	if at >= event.Micros(pane+1)*s.Resolution {
		pane = paneOf(s, at)
	}
	if total == event.MaxDecimal || total+n < 0 {
		return state, Added{}, 0, false
	}
	for paneEnds(s, oldest) <= at {
		amount, size := readAmount(state[cut:])
		if cut += size; cut == len(state) {
			return state, Added{}, 0, false
		}
		gap, size := uvarint(state[cut:])
		cut += size
		oldest += int64(gap)
		total -= amount
	}
	count := total + n
	putLatest(state, at)
	var buf [3 * maxVarint]byte
	front := append(appendAmount(buf[:0], count), 0)
	front = appendUvarint(front, uint64(pane-oldest))
	state = splice(state, headBytes, cut, front)
	return addLast(state, pane-newest, n), Added{Count: count}, paneEnds(s, pane), true
}

func (panes) countAt(s *Spec, state []byte, now event.Micros) event.Decimal {
	p := readPanes(s, state)
	p.latest = now
	p, _ = dropPanes(s, state, p)
	return p.total
}

// below lets one pane after the other end until less than limit is left.
func (panes) below(s *Spec, state []byte, limit event.Decimal) event.Micros {
	p := readPanes(s, state)
	if p.total < limit || p.total == 0 {
		return p.latest
	}
	return paneEnds(s, lastAbove(state, p.body, p.oldest, p.total, limit))
}

// lastAbove is the last pane without which less than limit would be left of total, if all panes
// before it had ended. The amounts begin at pos with that of pane.
func lastAbove(state []byte, pos int, pane int64, total, limit event.Decimal) int64 {
	hi, lo := uint64(0), uint64(total)
	if total == event.MaxDecimal {
		hi, lo = wideSum(state[pos:])
	}
	for {
		amount, n := readAmount(state[pos:])
		pos += n
		var borrow uint64
		lo, borrow = bits.Sub64(lo, uint64(amount), 0)
		hi -= borrow
		if hi == 0 && lo < uint64(max(limit, 0)) || pos == len(state) {
			return pane
		}
		gap, n := uvarint(state[pos:])
		pos += n
		pane += int64(gap)
	}
}

func (panes) spent(s *Spec, state []byte) event.Micros {
	p := readPanes(s, state)
	if p.total == 0 {
		return p.latest
	}
	return paneEnds(s, p.newest)
}

func (p panes) take(s *Spec, state []byte, at event.Micros, n event.Decimal) []byte {
	start := event.Micros(paneOf(s, at)) * s.Resolution
	parts := paneParts(s, state)
	i := slices.IndexFunc(parts, func(p part) bool { return p.at == start })
	if i < 0 {
		return state
	}
	parts[i].n -= min(parts[i].n, n)
	return recount(p, s, state, parts, getLatest(state))
}

func (panes) holds(s *Spec, state []byte, at event.Micros) bool {
	return paneEnds(s, paneOf(s, at)) > getLatest(state)
}

// paneParts are the starts of the panes, oldest first.
func paneParts(s *Spec, state []byte) (parts []part) {
	p := readPanes(s, state)
	pane := p.oldest
	for pos := p.body; pos < len(state); {
		n, size := readAmount(state[pos:])
		pos += size
		parts = append(parts, part{event.Micros(pane) * s.Resolution, n})
		if pos < len(state) {
			gap, size := uvarint(state[pos:])
			pos += size
			pane += int64(gap)
		}
	}
	return parts
}
