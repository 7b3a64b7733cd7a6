package windows_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/windows"
)

func fromFirst(per, lateness event.Micros) windows.Spec {
	return windows.Spec{Kind: windows.FromFirst, Per: per, Lateness: lateness}
}

func TestAWindowBeginsWithTheFirstEventThatCounts(t *testing.T) {
	c := newCounter(t, fromFirst(event.Minute, event.Hour))
	start := at("2026-11-21T10:00:07Z")
	c.counts(start-event.Minute, 0, 0) // it counts nothing, and opens no window
	if len(c.state) > 0 {
		t.Errorf("a window was opened: % x", c.state)
	}
	c.counts(start, 1, 1)
	c.counts(start+event.Minute-tick, 1, 2)
	c.isBelow(2, start+event.Minute)
	c.isSpent(start + 2*event.Minute)
	if from, to := c.spec.Bounds(c.state, start+30*event.Second); from != start || to != start+event.Minute {
		t.Errorf("the window is from %v to %v", from.Time(), to.Time())
	}
	later := start + 17*event.Minute
	if from, to := c.spec.Bounds(c.state, later); from != later || to != later+event.Minute {
		t.Errorf("the next window may be from %v to %v", from.Time(), to.Time())
	}
	c.counts(later-event.Minute, 0, 0)
	c.counts(later, 1, 1)
	c.isBelow(1, later+event.Minute)
}

func TestWhatComesLateMovesNoStart(t *testing.T) {
	c := newCounter(t, fromFirst(event.Minute, event.Hour))
	start := at("2026-11-21T10:00:00Z")
	c.counts(start, 1, 1)
	c.counts(start-event.Minute+tick, 1, 2) // it would have opened this window
	c.isBelow(1, start+event.Minute)
	c.countsEnded(start-event.Minute, 1, 1) // it had one of its own, which ended behind it
	c.countsEnded(start-event.Minute, 1, 2)
	c.tooLate(start - event.Minute - tick)
	c.counts(start-event.Minute+tick, 1, 3)
}

func TestTheWindowBeforeIsHeldForPerPastItsEnd(t *testing.T) {
	c := newCounter(t, fromFirst(event.Minute, event.Hour))
	start := at("2026-11-21T10:00:00Z")
	c.counts(start, 1, 1)
	c.counts(start+90*event.Second, 1, 1)
	c.countsEnded(start+59*event.Second, 1, 2)
	c.tooLate(start - tick)
	c.counts(start+60*event.Second, 1, 2) // between the two: the window goes on from where it began
	c.counts(start+120*event.Second, 1, 3)
	c.tooLate(start + 59*event.Second)
	c.isBelow(1, start+150*event.Second)
}

// What a refund takes back it takes from where that was counted.
func TestARefundKnowsWhatCameLateIntoTheCurrentWindow(t *testing.T) {
	c := newCounter(t, refundable(fromFirst(event.Minute, event.Hour)))
	start := at("2026-11-21T10:00:00Z")
	c.counts(start, 5, 5)
	late := start - 20*event.Second
	c.counts(late, 2, 7)
	c.countsEnded(start-70*event.Second, 4, 4)
	if since := c.spec.Since(c.state); since != start-event.Minute+tick || !c.spec.Holds(c.state, late) {
		t.Errorf("the window reaches back to %v", since.Time())
	}
	c.state = c.spec.Take(c.state, late, 2*event.One)
	c.counts(start, 0, 5)
	c.countsEnded(start-70*event.Second, 0, 4)
	c.counts(start+2*event.Minute, 1, 1)
	if c.spec.Holds(c.state, late) {
		t.Error("what came before the window before is in one")
	}
}

// naiveFirst keeps every event of every window there ever was.
type naiveFirst struct {
	per, lateness event.Micros
	counts        func([]happened) event.Decimal
	windows       []firstWindow // by their starts; the last is the current one
	latest        event.Micros
}

type firstWindow struct {
	start, end event.Micros
	events     []happened
}

// find is the place of a moment's window; -1 for none. When opens, it would be a new one there.
func (o *naiveFirst) find(at event.Micros) (place int, opens bool, end event.Micros) {
	n := len(o.windows)
	if n == 0 || at >= o.windows[n-1].end {
		return n, true, at + o.per
	}
	cur := o.windows[n-1]
	held := func(end event.Micros) bool { return o.latest < end+min(o.per, o.lateness) }
	if at >= cur.start {
		return n - 1, false, 0
	}
	if n > 1 {
		switch last := o.windows[n-2]; {
		case at < last.start, at < last.end && !held(last.end):
			return -1, false, 0
		case at < last.end:
			return n - 2, false, 0
		}
	}
	if at > cur.start-o.per {
		return n - 1, false, 0
	}
	if end = min(at+o.per, cur.start-o.per+1); !held(end) {
		return -1, false, 0
	}
	return n - 1, true, end
}

// add counts an event, or a value of a counter of those.
func (o *naiveFirst) add(e happened, value bool) windows.Added {
	place, opens, end := o.find(e.at)
	n := len(o.windows)
	switch {
	case place < 0:
		return windows.Added{Late: true, Count: o.current()}
	case opens && e.n == 0 && !value:
		return windows.Added{Ended: place < n}
	case opens:
		o.windows = slices.Insert(o.windows, place, firstWindow{start: e.at, end: end})
		n++
	}
	w := &o.windows[place]
	w.events = append(w.events, e)
	if place == n-1 {
		o.latest = max(o.latest, e.at)
		if len(w.events) == 1 {
			o.latest = e.at
		}
	}
	return windows.Added{Ended: place < n-1, Count: o.counts(w.events)}
}

func (o *naiveFirst) current() event.Decimal {
	if len(o.windows) == 0 {
		return 0
	}
	return o.counts(o.windows[len(o.windows)-1].events)
}

// forget is Forget: a window that began by then is emptied, if the moment is not late.
func (o *naiveFirst) forget(to event.Micros, value bool) windows.Added {
	added := windows.Added{}
	if len(o.windows) > 0 {
		place, opens, _ := o.find(to)
		cur := o.windows[len(o.windows)-1]
		added.Late, added.Ended = place < 0, place >= 0 && place < len(o.windows)-1 || opens && place == len(o.windows)-1
		if !added.Late && to < cur.end && (!value || to > o.latest) {
			if place == len(o.windows)-1 && !opens {
				o.latest = max(o.latest, to)
			}
		}
	}
	for i := range o.windows {
		if w := &o.windows[i]; !added.Late && w.start <= to {
			w.events = slices.Clone(w.events)
			for j := range w.events {
				w.events[j].n = 0
			}
		}
	}
	return added
}

func firstFrom(b []byte) (windows.Spec, event.Micros, []event.Micros) {
	scale := pick(scales, b[0])
	spec := fromFirst((1+event.Micros(b[1])%32)*scale, event.Micros(b[3])/4*scale)
	return spec, pick(starts, b[4]), []event.Micros{1, scale, 5 * scale}
}

func FuzzFromFirst(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(seed%2 == 0, story(rand.New(rand.NewPCG(seed, 0)), 60))
	}
	f.Fuzz(func(t *testing.T, distinct bool, data []byte) {
		if len(data) >= head && len(data) <= 200 {
			compareFirst(t, distinct, data)
		}
	})
}

func TestFromFirstEqualsTheOracle(t *testing.T) {
	for seed := range uint64(testrun.Depth(24_000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		compareFirst(t, seed%4 == 0, story(r, 1+r.IntN(40)))
		if t.Failed() {
			t.Fatalf("story of rand.NewPCG(%d, 1)", seed)
		}
	}
}

func compareFirst(t *testing.T, distinct bool, data []byte) {
	t.Helper()
	spec, now, steps := firstFrom(data)
	o := &naiveFirst{per: spec.Per, lateness: spec.Lateness, counts: total}
	if spec.Refunds, spec.Distinct = !distinct, distinct; distinct {
		o.counts = different
	}
	if err := spec.Validate(); err != nil {
		t.Fatal(err)
	}
	state := make([]byte, 0, spec.MaxBytes())
	memory := &state[:1][0]
	for i := head; i+1 < len(data); i += 2 {
		now += event.Micros(int8(data[i])) * steps[int(data[i+1])/8%len(steps)]
		n := amount(data[i+1], false)
		var got, want windows.Added
		switch {
		case data[i+1]%32 == 31 && data[i+1] < 250:
			want = o.forget(now, distinct)
			state, got, _ = spec.Forget(state, now)
			got.Count = 0
		case distinct:
			value := 1 + data[i+1]%16
			want = o.add(happened{at: now, n: event.Decimal(value)}, true)
			state, got = spec.AddValue(state, now, hashOf(uint64(value)))
		default:
			want = o.add(happened{at: now, n: n}, false)
			var spent event.Micros
			if state, got, spent = spec.AddSpent(state, now, n); spent != spec.Spent(state) {
				t.Fatalf("%+v: AddSpent says %d, Spent %d", spec, spent, spec.Spent(state))
			}
			if data[i]%16 == 3 {
				state = o.takeOne(&spec, state, data[i+1])
			}
		}
		if got.Known = false; got != want {
			t.Fatalf("%+v: at %d of %d: %+v, want %+v", spec, now, n, got, want)
		}
		if err := spec.Check(state); err != nil {
			t.Fatalf("%+v: %v: % x", spec, err, state)
		}
		o.compare(t, &spec, state, event.Micros(data[i+1])*steps[2])
		if len(state) > 0 && !distinct && &state[0] != memory {
			t.Fatalf("%+v: a state of %d bytes did not fit into MaxBytes %d", spec, len(state), spec.MaxBytes())
		}
		now = max(now, o.latest)
	}
	if !distinct {
		compareSpent(t, script{spec: spec, steps: steps}, state, data[head:])
	}
}

// takeOne takes an event back that is still in its window by the state's own word, which must be true.
func (o *naiveFirst) takeOne(spec *windows.Spec, state []byte, which byte) []byte {
	for i := range o.windows {
		w := &o.windows[i]
		for j := range w.events {
			e := &w.events[j]
			if (i+j)%4 != int(which)%4 || !spec.Holds(state, e.at) || total(w.events) >= event.MaxDecimal {
				continue
			}
			n := min(e.n, 2*event.One)
			e.n -= n
			return spec.Take(state, e.at, n)
		}
	}
	return state
}

func (o *naiveFirst) compare(t *testing.T, spec *windows.Spec, state []byte, ahead event.Micros) {
	t.Helper()
	if len(o.windows) == 0 {
		if len(state) > 0 {
			t.Fatalf("%+v: nothing was counted, and the state is % x", spec, state)
		}
		return
	}
	cur := o.windows[len(o.windows)-1]
	count := o.current()
	if spec.Latest(state) != o.latest || spec.Count(state) != count {
		t.Fatalf("%+v: %d counts at %d, want %d at %d", spec, spec.Count(state), spec.Latest(state), count, o.latest)
	}
	now, later := o.latest+ahead, count
	if now >= cur.end {
		later = 0
	}
	if got := spec.CountAt(state, now); got != later {
		t.Fatalf("%+v: CountAt(%d) = %d, want %d", spec, now, got, later)
	}
	if from, to := spec.Bounds(state, o.latest); from != cur.start || to != cur.end {
		t.Fatalf("%+v: from %d to %d, want from %d to %d", spec, from, to, cur.start, cur.end)
	}
	below := o.latest
	if count >= 3*event.One {
		below = cur.end
	}
	if got := spec.Below(state, 3*event.One); got != below || spec.Spent(state) != cur.end+min(spec.Per, spec.Lateness) {
		t.Fatalf("%+v: below from %d, want %d; spent at %d", spec, got, below, spec.Spent(state))
	}
}
