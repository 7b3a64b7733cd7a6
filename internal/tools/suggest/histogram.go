package suggest

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/tallygate/tallygate/event"
)

// maxCounts bounds the different counts that a histogram tells apart. Sums may all be different: beyond it counts are
// rounded up to coarseBits significant bits, so to less than a thousandth more.
const (
	maxCounts  = 1 << 16
	coarseBits = 11
)

// histogram counts how often each count was there.
type histogram struct {
	n      map[event.Decimal]int
	coarse bool

	// The greatest first: see finish.
	sorted []bar
}

type bar struct {
	count event.Decimal
	// Events of this count.
	n int
	// Events of greater ones.
	above int
}

// add counts an event. Once there are too many counts, all of them become coarse ones, and stay so: rounded up, none gets
// below a limit that it was above.
func (h *histogram) add(count event.Decimal) {
	if h.n == nil {
		h.n = map[event.Decimal]int{}
	}
	if h.coarse {
		count = coarsened(count)
	}
	h.n[count]++
	if len(h.n) > maxCounts && !h.coarse {
		h.coarse = true
		all := h.n
		h.n = map[event.Decimal]int{}
		for count, n := range all {
			h.n[coarsened(count)] += n
		}
	}
}

// coarsened rounds up to coarseBits significant bits.
func coarsened(count event.Decimal) event.Decimal {
	shift := bits.Len64(uint64(max(count, 0))) - coarseBits
	if shift <= 0 {
		return count
	}
	unit := event.Decimal(1) << shift
	if rest := count % unit; rest > 0 {
		return count.Plus(unit - rest)
	}
	return count
}

// finish sorts the counts for above and least.
func (h *histogram) finish() {
	h.sorted = h.sorted[:0]
	for count, n := range h.n {
		h.sorted = append(h.sorted, bar{count: count, n: n})
	}
	slices.SortFunc(h.sorted, func(a, b bar) int { return cmp.Compare(b.count, a.count) })
	above := 0
	for i := range h.sorted {
		h.sorted[i].above = above
		above += h.sorted[i].n
	}
}

// events counts all events.
func (h *histogram) events() int {
	if len(h.sorted) == 0 {
		return 0
	}
	last := h.sorted[len(h.sorted)-1]
	return last.above + last.n
}

// above counts the events of more than a limit. There are few bars, and few limits are asked for.
func (h *histogram) above(limit event.Decimal) int {
	for i := range h.sorted {
		if h.sorted[i].count <= limit {
			return h.sorted[i].above
		}
	}
	return h.events()
}

// least is the least count that at most so many events are above; 0 if that is so of all events.
func (h *histogram) least(most int) event.Decimal {
	for i := range h.sorted {
		if h.sorted[i].above+h.sorted[i].n > most {
			return h.sorted[i].count
		}
	}
	return 0
}
