package windows

import (
	"encoding/binary"

	"github.com/tallygate/tallygate/event"
)

// recent counts the distinct values of sliding windows, or of those hopping windows that hold the
// latest time, K says which. Its state is the head, and for each value that is in the window its hash
// and when it last came, newest first: to the µs where Exact, else to the end of a sliding window's
// pane, or to the start of a hopping one's; all less Per when it leaves. At most ExactDistinct+1 of
// them: what is dropped leaves before the others. Ended windows are not held: a value's last time does
// not tell in which of them it was.
type recent[K recentKind] struct {
	onlyHead
	fullAtLimit
	noAddSpent
	noRefunds
}

// recentKind describes the values of K.
type recentKind interface {
	validate(s *Spec) error
	bounds(s *Spec, state []byte, now event.Micros) (from, to event.Micros)
	counted(s *Spec, at event.Micros) event.Micros // the moment that a value's last event stands for: it counts until Per later
	before(s *Spec, at, latest event.Micros) bool  // at is before all windows that hold latest
}

const (
	formatRecent = 0x18
	recentBytes  = hashBytes + 8
)

func (recent[K]) validate(s *Spec) error {
	var k K
	return k.validate(s)
}

func (recent[K]) bounds(s *Spec, state []byte, now event.Micros) (from, to event.Micros) {
	var k K
	return k.bounds(s, state, now)
}

func (recent[K]) estimates() bool { return false }

func (recent[K]) maxBytes(*Spec) int { return headBytes + (ExactDistinct+1)*recentBytes }

func (recent[K]) formats() (oldest, newest byte) { return formatRecent, formatRecent }

func (recent[K]) check(s *Spec, state []byte) error {
	r := reader{rest: state}
	latest := r.head()
	switch n := len(r.rest) / recentBytes; {
	case r.err != nil:
		return r.err
	case len(r.rest)%recentBytes != 0:
		return errTruncated
	case n > ExactDistinct+1:
		return errTrailing
	}
	var k K
	newer := k.counted(s, latest)
	for i := range recentLen(state) {
		_, when := recentAt(state, i)
		if when > newer || latest >= when+s.Per {
			return errOrder
		}
		newer = when
	}
	return nil
}

func (recent[K]) addValue(s *Spec, state []byte, at event.Micros, hash uint64) ([]byte, Added) {
	if len(state) == 0 {
		state = newHead(state, formatRecent, at)
	}
	latest := getLatest(state)
	var k K
	if k.before(s, at, latest) {
		return state, Added{Late: true, Count: unitsToDecimal(uint64(recentLen(state)))}
	}
	if at > latest {
		state = moveRecent(s, state, at)
	}
	when := k.counted(s, at)
	n := recentLen(state)
	from := n // where the value is, or will be made room for
	for i := range n {
		if h, _ := recentAt(state, i); h == hash {
			from = i
			break
		}
	}
	added := Added{Known: from < n, Count: unitsToDecimal(uint64(n))}
	if added.Known {
		if _, had := recentAt(state, from); had >= when {
			return state, added
		}
	} else if n <= ExactDistinct {
		var entry [recentBytes]byte
		state = append(state, entry[:]...)
		added.Count += event.One
	} else if from--; from >= 0 {
		if _, oldest := recentAt(state, from); oldest >= when {
			return state, added
		}
	}
	for ; from > 0; from-- {
		h, newer := recentAt(state, from-1)
		if newer >= when {
			break
		}
		putRecent(state, from, h, newer)
	}
	putRecent(state, from, hash, when)
	return state, added
}

// add moves the latest time on without a value.
func (recent[K]) add(s *Spec, state []byte, at event.Micros, _ event.Decimal) ([]byte, Added) {
	if len(state) == 0 {
		return state, Added{Known: true}
	}
	latest := getLatest(state)
	if at > latest {
		state = moveRecent(s, state, at)
	}
	var k K
	return state, Added{Late: k.before(s, at, latest), Known: true, Count: unitsToDecimal(uint64(recentIn(s, state, getLatest(state))))}
}

func (recent[K]) countAt(s *Spec, state []byte, now event.Micros) event.Decimal {
	return unitsToDecimal(uint64(recentIn(s, state, now)))
}

func (recent[K]) below(s *Spec, state []byte, limit event.Decimal) event.Micros {
	n := recentLen(state)
	if n == 0 || unitsToDecimal(uint64(n)) < limit {
		return getLatest(state)
	}
	least := int(min((max(limit, 1)+event.One-1)/event.One, event.Decimal(n))) // so many are too many
	_, when := recentAt(state, least-1)
	return when + s.Per
}

func (recent[K]) spent(s *Spec, state []byte) event.Micros {
	if recentLen(state) == 0 {
		return getLatest(state)
	}
	_, when := recentAt(state, 0)
	return when + s.Per
}

// carry moves the times of values, which were those of panes' ends, to the latest time at most.
func (recent[K]) carry(s *Spec, state []byte, from *Spec) []byte {
	if !s.Exact || from.Exact {
		return state
	}
	latest := getLatest(state)
	for i := range recentLen(state) {
		if hash, when := recentAt(state, i); when > latest {
			putRecent(state, i, hash, latest)
		}
	}
	return state
}

// moveRecent moves the latest time on, and drops what slid out.
func moveRecent(s *Spec, state []byte, at event.Micros) []byte {
	putLatest(state, at)
	return state[:headBytes+recentIn(s, state, at)*recentBytes]
}

// recentIn counts the values in the window at now.
func recentIn(s *Spec, state []byte, now event.Micros) int {
	n := recentLen(state)
	for n > 0 {
		if _, when := recentAt(state, n-1); now < when+s.Per {
			break
		}
		n--
	}
	return n
}

func recentLen(state []byte) int { return (len(state) - headBytes) / recentBytes }

func recentAt(state []byte, i int) (hash uint64, when event.Micros) {
	b := state[headBytes+i*recentBytes:]
	return binary.LittleEndian.Uint64(b), event.Micros(binary.LittleEndian.Uint64(b[hashBytes:]))
}

func putRecent(state []byte, i int, hash uint64, when event.Micros) {
	b := state[headBytes+i*recentBytes:]
	binary.LittleEndian.PutUint64(b, hash)
	binary.LittleEndian.PutUint64(b[hashBytes:], uint64(when))
}
