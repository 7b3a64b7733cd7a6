package windows

import (
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/event"
)

// hopping counts windows of the length Per, one of which begins every Every. So Per/Every of them hold
// each moment. It counts by panes of the length Every: each window is a whole number of panes, so
// that its count is exact. See hopping_form.go for its state.
//
// Of the windows that hold the latest time the first one has the greatest count: it covers the panes
// of all others, as nothing is later than the latest time. So its count is the current one. A window
// that has ended is held until min(Per, Lateness) past its end, as tumbling ones are.
type hopping struct {
	headed
	amounts
	refunds
	oneForm
}

func (hopping) validate(s *Spec) error {
	err := errors.Join(checkSpan("lateness", s.Lateness, 0), checkSpan("per", s.Per, 1),
		checkSpan("every", s.Every, 1), checkSpan("offset", s.Offset, -MaxTime))
	switch {
	case err != nil:
		return err
	case s.Per%s.Every != 0:
		return fmt.Errorf("windows: per, %v, is not a multiple of every, %v", s.Per.Duration(), s.Every.Duration())
	case s.Per/s.Every > MaxHops:
		return fmt.Errorf("windows: every %v makes more than %d windows at once of %v", s.Every.Duration(), MaxHops, s.Per.Duration())
	}
	return nil
}

// maxBytes: all panes of the windows that hold a moment, as many of ended ones, and one on the way.
func (hopping) maxBytes(s *Spec) int {
	return headBytes + 5*maxVarint + int(2*hopsOf(s)+1)*(1+maxVarint)
}

func (hopping) formats() (oldest, newest byte) { return formatHopping, formatHopping }

func (hopping) check(s *Spec, state []byte) error {
	r := reader{rest: state}
	latest := r.head()
	if r.err == nil && !r.more() {
		return nil
	}
	most := uint64(2 * hopsOf(s))
	now := hopOf(s, latest)
	h := hops{count: r.amount(0)}
	h.newest = now - int64(r.number(0, most))
	h.oldest = h.newest - int64(r.number(0, most))
	ended := r.number(0, uint64(len(state)))
	if h.first = h.oldest; ended > 0 && h.count > 0 {
		h.first += int64(r.number(1, most))
	}
	if r.err == nil && h.oldest <= now-int64(most) {
		r.fail(errTime)
	}
	return checkHops(s, &r, &h, now, int(ended))
}

// checkHops reads the panes, and compares them with what is said ahead of them.
func checkHops(s *Spec, r *reader, h *hops, now int64, ended int) error {
	body := len(r.rest)
	cut, first := -1, h.oldest
	var count event.Decimal
	pane := h.oldest
	for {
		current := pane > now-hopsOf(s)
		if current && cut < 0 {
			cut, first = body-len(r.rest), pane
		}
		n := r.amount(1)
		if current {
			count = count.Plus(n)
		}
		if !r.more() {
			break
		}
		pane += int64(r.number(1, uint64(2*hopsOf(s))))
	}
	if cut < 0 {
		cut = body
	}
	switch {
	case r.err != nil:
		return r.err
	case pane != h.newest, cut != ended, h.first != first:
		return errOrder
	case count != h.count:
		return errTotal
	}
	return r.end()
}

func (hopping) add(s *Spec, state []byte, at event.Micros, n event.Decimal) ([]byte, Added) {
	if len(state) == 0 {
		state = newHead(state, formatHopping, at)
	}
	h := readHops(s, state)
	pane := hopOf(s, at)
	if pane < heldFrom(s, h.latest) {
		return state, Added{Late: true, Count: h.count}
	}
	if at > h.latest {
		h.latest = at
		putLatest(state, at)
	}
	state = writeHops(s, state, h, pane, n)
	return state, hopsAdded(s, state, pane)
}

// hopsAdded counts the windows that hold a pane, with an amount added to it: the greatest of their counts, of the
// ones that hold the latest time or of ended ones that are still held.
func hopsAdded(s *Spec, state []byte, pane int64) Added {
	h := readHops(s, state)
	now := hopOf(s, h.latest)
	from, to := max(pane-hopsOf(s)+1, heldFrom(s, h.latest)), min(pane, now-hopsOf(s))
	if from > to {
		return Added{Count: h.count}
	}
	most := mostOf(s, state, h, from, to)
	if pane > now-hopsOf(s) && most <= h.count {
		return Added{Count: h.count}
	}
	return Added{Ended: true, Count: most}
}

// addSpent adds to the newest pane, or opens a newer one.
func (hopping) addSpent(s *Spec, state []byte, at event.Micros, n event.Decimal) (_ []byte, added Added, spent event.Micros, ok bool) {
	latest := getLatest(state)
	if at < latest || len(state) == headBytes {
		return state, Added{}, 0, false
	}
	h := readHops(s, state)
	if h.count == event.MaxDecimal || h.count+n < 0 {
		return state, Added{}, 0, false
	}
	pane := hopOf(s, latest)
	from := h.body
	if at >= hopStart(s, pane+1) {
		pane = hopOf(s, at)
		h.move(state, pane-hopsOf(s)+1)
		from, h.oldest = dropHops(state, from, h.oldest, keptFrom(s, pane))
	}
	if h.count == 0 {
		return state, Added{}, 0, false
	}
	newest := h.newest
	h.count, h.newest, h.body = h.count+n, pane, from
	count := h.count
	putLatest(state, at)
	var buf [5 * maxVarint]byte
	state = splice(state, headBytes, from, appendHops(&h, buf[:0], pane))
	return addLast(state, pane-newest, n), Added{Count: count}, hopSpent(s, pane), true
}

func (hopping) countAt(s *Spec, state []byte, now event.Micros) event.Decimal {
	h := readHops(s, state)
	h.move(state, hopOf(s, now)-hopsOf(s)+1)
	return h.count
}

// bounds are those of the first of the windows that hold now.
func (hopping) bounds(s *Spec, _ []byte, now event.Micros) (from, to event.Micros) {
	from = hopStart(s, hopOf(s, now)-hopsOf(s)+1)
	return from, from + s.Per
}

// below lets one pane after the other leave the first of the windows that hold the time.
func (hopping) below(s *Spec, state []byte, limit event.Decimal) event.Micros {
	h := readHops(s, state)
	if h.count < limit || h.count == 0 {
		return h.latest
	}
	return hopStart(s, lastAbove(state, h.cut, h.first, h.count, limit)+hopsOf(s))
}

func (hopping) spent(s *Spec, state []byte) event.Micros {
	latest := getLatest(state)
	if len(state) == headBytes {
		return latest
	}
	return max(latest, hopSpent(s, readHops(s, state).newest))
}

func (t hopping) take(s *Spec, state []byte, at event.Micros, n event.Decimal) []byte {
	pane := hopOf(s, at)
	if !t.holds(s, state, at) {
		return state
	}
	parts := hopParts(s, state)
	for i := range parts {
		if parts[i].at == hopStart(s, pane) {
			parts[i].n -= min(parts[i].n, n)
		}
	}
	return recount(t, s, state, parts, getLatest(state))
}

func (hopping) holds(s *Spec, state []byte, at event.Micros) bool {
	return hopOf(s, at) >= heldFrom(s, getLatest(state))
}

// empty takes the panes of the windows that hold the latest time, or those that only ended ones have.
func (t hopping) empty(s *Spec, state []byte, before bool) []byte {
	latest := getLatest(state)
	from, _ := t.bounds(s, state, latest)
	parts := hopParts(s, state)
	for i := range parts {
		if (parts[i].at < from) == before {
			parts[i].n = 0
		}
	}
	return recount(t, s, state, parts, latest)
}

// Distinct values are counted by the panes that they came in last: see recent.

func (hopping) counted(s *Spec, at event.Micros) event.Micros { return hopStart(s, hopOf(s, at)) }

func (hopping) before(s *Spec, at, latest event.Micros) bool {
	return hopOf(s, at) <= hopOf(s, latest)-hopsOf(s)
}

func hoppingCells(s *Spec) (grain, offset, keeps event.Micros) { return s.Every, s.Offset, s.Per }
