package windows

import (
	"math/bits"

	"github.com/tallygate/tallygate/pipeline/event"
)

// A pane counter's state is the head, and unless nothing is in the window: the total, how
// many panes the newest one lies before the latest time's, how many the oldest one lies
// before the newest, and the panes that have an amount, oldest first: the oldest's amount,
// then of each the difference to the one before it, and its amount. So the common events
// touch the two ends only: one that falls into the newest pane or opens the next one.

// panes is what a state says ahead of the panes' amounts, which begin at body.
type panes struct {
	latest         event.Micros
	total          event.Decimal // 0: there are no panes
	oldest, newest int64         // indexes since the epoch
	body           int
}

func (s *Spec) paneOf(at event.Micros) int64 { return int64(floorDiv(at, s.Resolution)) }

// paneEnds is the moment from which a pane does not count any more.
func (s *Spec) paneEnds(pane int64) event.Micros {
	return event.Micros(pane+1)*s.Resolution + s.Per
}

func (s *Spec) readPanes(state []byte) panes {
	p := panes{latest: getLatest(state), body: headBytes}
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
	p.newest = s.paneOf(p.latest) - int64(back)
	p.oldest = p.newest - int64(span)
	return p
}

func (s *Spec) addPanes(state []byte, at event.Micros, n event.Decimal) ([]byte, Added) {
	if len(state) == 0 {
		state = newHead(state, formatPanes, at)
	}
	p := s.readPanes(state)
	if at <= p.latest-s.Per {
		return state, Added{Late: true, Count: p.total}
	}
	cut := p.body
	if at > p.latest {
		p.latest = at
		putLatest(state, at)
		p, cut = s.dropPanes(state, p)
	}
	state = s.writePanes(state, p, cut, s.paneOf(at), n)
	return state, Added{Count: p.total.Plus(n)}
}

// dropPanes finds the panes that do not count at the latest time. The amounts of the others
// begin at cut.
func (s *Spec) dropPanes(state []byte, p panes) (_ panes, cut int) {
	cut = p.body
	saturated := p.total == event.MaxDecimal
	for p.total > 0 && s.paneEnds(p.oldest) <= p.latest {
		amount, n := readAmount(state[cut:])
		cut += n
		p.total -= amount
		if cut == len(state) {
			p.total = 0
			break
		}
		gap, n := uvarint(state[cut:])
		cut += n
		p.oldest += int64(gap)
		if saturated {
			p.total = sumPanes(state[cut:])
			saturated = p.total == event.MaxDecimal
		}
	}
	return p, cut
}

// writePanes adds n to a pane, and lets what comes ahead of the amounts follow; these begin
// at cut.
func (s *Spec) writePanes(state []byte, p panes, cut int, pane int64, n event.Decimal) []byte {
	if p.total == 0 {
		state = state[:headBytes]
		if n == 0 {
			return state
		}
		p.oldest, p.newest, p.total = pane, pane, n
		return appendAmount(s.appendPanes(state, p), n)
	}
	was := p
	p.total = p.total.Plus(n)
	p.oldest, p.newest = min(p.oldest, pane), max(p.newest, pane)
	if n == 0 {
		p.oldest, p.newest = was.oldest, was.newest
	}
	var buf [3 * maxVarint]byte
	state = splice(state, headBytes, cut, s.appendPanes(buf[:0], p))
	if n == 0 {
		return state
	}
	if pane < was.newest {
		return insertPane(state, s.readPanes(state).body, was.oldest, pane, n)
	}
	if pane > was.newest {
		state = appendUvarint(state, uint64(pane-was.newest))
		return appendAmount(state, n)
	}
	last := lastVarint(state)
	amount, _ := readAmount(state[last:])
	return appendAmount(state[:last], amount.Plus(n))
}

// appendPanes appends what comes ahead of the amounts, but for the head.
func (s *Spec) appendPanes(b []byte, p panes) []byte {
	b = appendAmount(b, p.total)
	b = appendUvarint(b, uint64(s.paneOf(p.latest)-p.newest))
	return appendUvarint(b, uint64(p.newest-p.oldest))
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

// lastVarint is where the state's last varint begins: behind the last byte but itself that
// ends one.
func lastVarint(state []byte) int {
	i := len(state) - 1
	for state[i-1] >= 0x80 {
		i--
	}
	return i
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

func (s *Spec) countPanesAt(state []byte, now event.Micros) event.Decimal {
	p := s.readPanes(state)
	p.latest = now
	p, _ = s.dropPanes(state, p)
	return p.total
}

// belowPanes lets one pane after the other end until less than limit is left.
func (s *Spec) belowPanes(state []byte, limit event.Decimal) event.Micros {
	p := s.readPanes(state)
	if p.total < limit || p.total == 0 {
		return p.latest
	}
	hi, lo := uint64(0), uint64(p.total)
	if p.total == event.MaxDecimal {
		hi, lo = wideSum(state[p.body:])
	}
	pane := p.oldest
	for pos := p.body; ; {
		amount, n := readAmount(state[pos:])
		pos += n
		var borrow uint64
		lo, borrow = bits.Sub64(lo, uint64(amount), 0)
		hi -= borrow
		if hi == 0 && lo < uint64(max(limit, 0)) || pos == len(state) {
			return s.paneEnds(pane)
		}
		gap, n := uvarint(state[pos:])
		pos += n
		pane += int64(gap)
	}
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

func (s *Spec) spentPanes(state []byte) event.Micros {
	p := s.readPanes(state)
	if p.total == 0 {
		return p.latest
	}
	return s.paneEnds(p.newest)
}

// maxPanes is how many panes can count at one time: those that Per covers, one that it
// covers in part, and the one of the latest time.
func (s *Spec) maxPanes() int { return int(s.Per/s.Resolution) + 2 }

// maxBytesPanes: one pane more than can count, on the way. Panes far apart take more bytes
// each, but leave out more panes than these.
func (s *Spec) maxBytesPanes() int {
	return headBytes + 3*maxVarint + (s.maxPanes()+1)*(1+maxVarint)
}

func (s *Spec) checkPanes(state []byte) error {
	r := reader{rest: state}
	latest := r.head()
	if r.err == nil && !r.more() {
		return nil
	}
	most := uint64(s.maxPanes())
	total := r.amount(1)
	newest := s.paneOf(latest) - int64(r.number(0, most))
	pane := newest - int64(r.number(0, most))
	if r.err == nil && s.paneEnds(pane) <= latest {
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
