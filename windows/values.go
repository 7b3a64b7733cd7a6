package windows

import "github.com/tallygate/tallygate/event"

// values is embedded by kinds that count distinct values in windows that do not overlap. A state is the head and the
// frame, the set of the window before as long as that is remembered, and the set of the current one.
type values struct {
	headed
	fullAtLimit
	noAddSpent
	noRefunds
	oneForm
}

const formatDistinct = 0x17

func (values) estimates() bool { return true }

func (values) maxBytes(*Spec) int { return headBytes + frameVarint*maxVarint + 2*setBytes }

func (values) formats() (oldest, newest byte) { return formatDistinct, formatDistinct }

func (values) countAt(_ *Spec, state []byte, now event.Micros) event.Decimal {
	var c sets
	if c.read(state); now < c.end {
		return c.current(state)
	}
	return 0
}

func (values) below(_ *Spec, state []byte, limit event.Decimal) event.Micros {
	var c sets
	c.read(state)
	if c.current(state) < limit {
		return c.latest
	}
	return c.end
}

func (values) empty(_ *Spec, state []byte, before bool) []byte {
	var c sets
	c.read(state)
	switch {
	case c.had && before:
		return splice(state, c.body, c.cur, emptySet[:])
	case before:
		return state
	}
	return append(state[:c.cur], 0)
}

var emptySet = [1]byte{0}

// sets locates the parts of a state. The frame may have been moved on since it was read.
type sets struct {
	frame
	had  bool // there is a set of the window before
	body int  // where the first set begins
	cur  int  // where the current window's begins
}

// putValue counts a value where it goes.
func putValue(s *Spec, state []byte, c *sets, to place, hash uint64) ([]byte, Added) {
	var added Added
	into := c.body
	switch to {
	case nowhere:
		return state, Added{Late: true, Count: c.current(state)}
	case joins:
		state = joinSets(state, c.body, c.cur, s.Estimate)
	case inBefore:
		added.Ended = true
		if !c.had {
			state = splice(state, c.body, c.body, emptySet[:])
		}
	case ownBefore:
		added.Ended = true
		state = splice(state, c.body, c.cur, emptySet[:])
	default:
		state = c.move(state, to)
		into = c.cur
	}
	state, added.Known = addToSet(state, into, hash, s.Estimate)
	v := readSet(state[into:])
	added.Count = v.count()
	return putFrame(state, formatDistinct, &c.frame, c.body), added
}

// moveValues moves the latest time on, without a value.
func moveValues(state []byte, c *sets, to place) ([]byte, Added) {
	state = c.move(state, to)
	added := Added{Known: true, Count: c.current(state)}
	return putFrame(state, formatDistinct, &c.frame, c.body), added
}

// move makes room for the set where a later event goes, and drops what is not held any more.
func (c *sets) move(state []byte, to place) []byte {
	switch {
	case to == opens:
		state = append(splice(state, c.body, c.cur, nil), 0)
		c.cur = len(state) - 1
	case to == opensAlone:
		state, c.cur = append(state[:c.body], 0), c.body
	case c.had && !c.hasBefore:
		state, c.cur = splice(state, c.body, c.cur, nil), c.body
	}
	return state
}

// current counts the values of the current window.
func (c *sets) current(state []byte) event.Decimal {
	v := readSet(state[c.cur:])
	return v.count()
}

func (c *sets) read(state []byte) {
	c.frame, c.body = readFrame(state)
	c.had, c.cur = c.hasBefore, c.body
	if c.had {
		v := readSet(state[c.body:])
		c.cur += v.size
	}
}

// newValues is the state of a counter that has no value yet, in the memory of an empty one.
func newValues(state []byte, f *frame) []byte {
	state = newHead(state, formatDistinct, f.latest)
	return append(putFrame(state, formatDistinct, f, headBytes), 0)
}

// checkValues reads the sets behind a frame, which may be anything.
func checkValues(r *reader, s *Spec, f *frame) error {
	if f.hasBefore {
		checkSet(r, s.Estimate)
	}
	checkSet(r, s.Estimate)
	return r.end()
}
