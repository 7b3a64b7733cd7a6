package emit

import "sync/atomic"

// budget counts the events and bytes that wait, in one word: events above, bytes in the low
// 40 bits. With two counters a caller that finds no room would for a moment hold a place
// that is not its own, and another one, who then finds none either, might wait for it without end.
type budget struct{ word atomic.Uint64 }

const (
	budgetShift  = 40
	maxMaxEvents = 1 << 23
	maxMaxBytes  = 1 << (budgetShift - 1)
)

// take reserves a place for one event if there is one.
func (b *budget) take(cost int64, maxEvents, maxBytes int) bool {
	for {
		word := b.word.Load()
		events, bytes := unpack(word)
		if events >= maxEvents || int64(bytes)+cost > int64(maxBytes) {
			return false
		}
		if b.word.CompareAndSwap(word, word+1<<budgetShift+uint64(cost)) {
			return true
		}
	}
}

func (b *budget) give(events int, cost int64) {
	b.word.Add(-(uint64(events)<<budgetShift + uint64(cost)))
}

func (b *budget) used() (events, bytes int) { return unpack(b.word.Load()) }

func (b *budget) empty() bool { return b.word.Load() == 0 }

func unpack(word uint64) (events, bytes int) {
	return int(word >> budgetShift), int(word & (1<<budgetShift - 1))
}
