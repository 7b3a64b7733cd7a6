package windows_test

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/windows"
)

// hashOf spreads a value over 64 bits, as the caller's hash does.
func hashOf(value uint64) uint64 {
	h := fnv.New128a()
	h.Write(binary.LittleEndian.AppendUint64(nil, value))
	sum := h.Sum(nil)
	x := binary.LittleEndian.Uint64(sum) ^ binary.LittleEndian.Uint64(sum[8:])
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func distinctly(spec windows.Spec) windows.Spec {
	spec.Distinct = true
	return spec
}

func TestDistinctCountsEachValueOncePerWindow(t *testing.T) {
	for name, spec := range map[string]windows.Spec{
		"tumbling": perMinute(), "calendar": civil(windows.Hour, "Europe/Berlin"), "session": perSession(event.Minute, event.Hour),
		"exact": exactly(event.Minute), "panes": inPanes(event.Minute, 0), "hopping": hoppingBy(event.Minute, event.Second),
	} {
		c := newCounter(t, distinctly(spec))
		start := at("2026-11-21T10:00:00Z")
		for i, tt := range []struct {
			value uint64
			count event.Decimal
			known bool
		}{{1, 1, false}, {2, 2, false}, {1, 2, true}, {3, 3, false}, {2, 3, true}} {
			var got windows.Added
			c.state, got = c.spec.AddValue(c.state, start+event.Micros(i), hashOf(tt.value))
			if want := (windows.Added{Count: tt.count * event.One, Known: tt.known}); got != want {
				t.Errorf("%s, value %d: %+v, want %+v", name, i, got, want)
			}
		}
		if got := c.spec.CountAt(c.state, start+2*event.Hour); got != 0 {
			t.Errorf("%s: two hours on it counts %v", name, got)
		}
	}
}

// The window before begins where it says: what came then is in it, and a microsecond before is late.
func TestTheFirstMomentOfTheWindowBeforeIsInIt(t *testing.T) {
	spec := distinctly(perMinute())
	start := at("2026-11-21T10:00:00Z")
	state, _ := spec.AddValue(nil, start+event.Minute, 1)
	if _, added := spec.AddValue(slices.Clone(state), start-tick, 2); !added.Late {
		t.Errorf("before it: %+v", added)
	}
	if _, added := spec.AddValue(state, start, 2); added != (windows.Added{Ended: true, Count: event.One}) {
		t.Errorf("at its beginning: %+v", added)
	}
}

// A value that comes again slides out later.
func TestAValueStaysUntilItsLastEventSlidesOut(t *testing.T) {
	c := newCounter(t, distinctly(exactly(event.Minute)))
	start := at("2026-11-21T10:00:00Z")
	for _, e := range []struct {
		after event.Micros
		value uint64
	}{{0, 1}, {event.Second, 2}, {30 * event.Second, 1}} {
		c.state, _ = c.spec.AddValue(c.state, start+e.after, hashOf(e.value))
	}
	c.isBelow(2, start+61*event.Second)
	c.isBelow(1, start+90*event.Second)
}

// manyValues counts n values in one window, twice each.
func manyValues(t *testing.T, spec windows.Spec, n int) (count event.Decimal) {
	t.Helper()
	c := newCounter(t, spec)
	state := make([]byte, 0, c.spec.MaxBytes())
	memory := &state[:1][0]
	var added windows.Added
	for i := range 2 * n {
		state, added = c.spec.AddValue(state, at("2026-11-21T10:00:00Z")+event.Micros(i), hashOf(uint64(i%n)))
		if i < n && added.Count < count {
			t.Fatalf("value %d lets the count fall from %v to %v", i, count, added.Count)
		}
		count = added.Count
	}
	if err := c.spec.Check(state); err != nil || &state[0] != memory {
		t.Fatalf("%d bytes, %v", len(state), err)
	}
	return count
}

func TestDistinctIsExactUpTo1024(t *testing.T) {
	for _, spec := range []windows.Spec{perMinute(), exactly(event.Minute), inPanes(event.Minute, 0), hoppingBy(event.Minute, event.Second), perSession(event.Minute, event.Hour)} {
		for _, n := range []int{1, 64, 65, 1023, 1024} {
			if got := manyValues(t, distinctly(spec), n); got != event.Decimal(n)*event.One {
				t.Errorf("kind %d: %d values count %v", spec.Kind, n, got)
			}
		}
		if got := manyValues(t, distinctly(spec), 3000); got != (windows.ExactDistinct+1)*event.One {
			t.Errorf("kind %d: without estimates 3,000 values count %v, want one more than is exact", spec.Kind, got)
		}
	}
}

func TestEstimatesAreAsCloseAsTheySay(t *testing.T) {
	t.Parallel()
	spec := distinctly(perMinute())
	spec.Estimate = true
	if got := manyValues(t, spec, 1024); got != 1024*event.One {
		t.Errorf("1,024 values count %v", got)
	}
	var squares, worst float64
	rounds := testrun.Depth(60)
	for round := range uint64(rounds) {
		r := rand.New(rand.NewPCG(round, 1))
		n := 1025 + r.IntN(12_000)
		var state []byte
		var added windows.Added
		for range n {
			state, added = spec.AddValue(state, 0, r.Uint64())
		}
		off := float64(added.Count)/float64(event.One)/float64(n) - 1
		squares += off * off
		worst = max(worst, math.Abs(off))
	}
	if rms := math.Sqrt(squares / float64(rounds)); rms > 1.15*windows.SketchError || worst > 4.5*windows.SketchError {
		t.Errorf("off by %.2f%% (root mean square), %.2f%% at worst, and it is said to be %.2f%%", 100*rms, 100*worst, 100*windows.SketchError)
	}
}

// Both windows of a counter may be sketches, or one of them; a late event joins them.
func TestJoinedSessionsHaveTheValuesOfBoth(t *testing.T) {
	for _, n := range [][2]uint64{{10, 20}, {1000, 1000}, {3000, 10}, {10, 3000}, {3000, 3000}} {
		spec := distinctly(perSession(event.Minute, event.Hour))
		spec.Estimate = true
		start := at("2026-11-21T10:00:00Z")
		var state []byte
		var added windows.Added
		for i := range n[0] {
			state, _ = spec.AddValue(state, start, hashOf(i))
		}
		for i := range n[1] { // half of them were in the first session
			state, _ = spec.AddValue(state, start+90*event.Second, hashOf(n[0]/2+i))
		}
		state, added = spec.AddValue(state, start+45*event.Second, hashOf(0))
		want := float64(max(n[0], n[0]/2+n[1]))
		if got := float64(added.Count) / float64(event.One); want <= 1024 && got != want || math.Abs(got/want-1) > 4*windows.SketchError {
			t.Errorf("%v: joined they count %v, want %v", n, got, want)
		}
		if err := spec.Check(state); err != nil {
			t.Errorf("%v: %v", n, err)
		}
	}
}

// addValue is add for distinct values: an event's n is its value.
func (o *oracle) addValue(at event.Micros, value event.Decimal) windows.Added {
	values := func(in func(happened) bool) (all []event.Decimal) {
		for _, e := range o.events {
			if in(e) && e.n > 0 && !slices.Contains(all, e.n) { // 0 is none
				all = append(all, e.n)
			}
		}
		return all
	}
	now := func(e happened) bool { return o.latest < e.until }
	answer := func(all []event.Decimal) windows.Added {
		return windows.Added{Count: event.Decimal(len(all)) * event.One, Known: slices.Contains(all, value)}
	}
	if len(o.events) > 0 && at < o.latest && !o.held(at, o.latest) {
		return windows.Added{Late: true, Count: answer(values(now)).Count}
	}
	if len(o.events) == 0 || at > o.latest {
		o.latest = at
	}
	in := now
	ended := !o.same(at, o.latest)
	if ended {
		in = func(e happened) bool { return o.same(at, e.at) }
	}
	added := answer(values(in))
	if added.Ended = ended; !added.Known {
		added.Count += event.One
	}
	o.events = append(o.events, happened{at, o.stays(at), value})
	return added
}

func FuzzDistinct(f *testing.F) {
	loadPlaces()
	for seed := range uint64(16) {
		f.Add(uint8(seed), story(rand.New(rand.NewPCG(seed, 0)), 60))
	}
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		if len(data) >= head && len(data) <= 200 {
			compareDistinct(t, kind, data)
		}
	})
}

func TestDistinctEqualsTheOracle(t *testing.T) {
	for seed := range uint64(testrun.Depth(12_000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		compareDistinct(t, uint8(seed), story(r, 1+r.IntN(30)))
		if t.Failed() {
			t.Fatalf("story of rand.NewPCG(%d, 1)", seed)
		}
	}
}

func compareDistinct(t *testing.T, kind uint8, data []byte) {
	t.Helper()
	if kind%6 == 4 {
		compareDistinctSessions(t, data)
		return
	}
	sc := []func([]byte) script{tumblingFrom, calendarFrom, exactFrom, panesFrom, nil, hoppingFrom}[kind%6](data[:head])
	sc.spec = distinctly(sc.spec)
	if sc.spec.Kind == windows.Hopping { // ended windows are not held
		sc.oracle.held = func(at, latest event.Micros) bool { return latest < sc.oracle.stays(at) }
		sc.oracle.same = func(_, _ event.Micros) bool { return true }
	}
	if err := sc.spec.Validate(); err != nil {
		t.Fatal(err)
	}
	o := sc.oracle
	if o == nil {
		o = oracleOf(&sc.spec)
	}
	state, now := make([]byte, 0, sc.spec.MaxBytes()), sc.start
	memory := &state[:1][0]
	for i := head; i+1 < len(data); i += 2 {
		now += event.Micros(int8(data[i])) * sc.steps[int(data[i+1])/8%len(sc.steps)]
		if sc.in != nil {
			now = sc.in(now)
		}
		value := 1 + data[i+1]%16
		want := o.addValue(now, event.Decimal(value))
		var got windows.Added
		if state, got = sc.spec.AddValue(state, now, hashOf(uint64(value))); got != want {
			t.Fatalf("%+v: AddValue(%d, %d) = %+v, want %+v", sc.spec, now, value, got, want)
		}
		if err := sc.spec.Check(state); err != nil || &state[0] != memory {
			t.Fatalf("%+v: %v: % x", sc.spec, err, state)
		}
		compareDistinctCounts(t, &sc.spec, state, o, event.Micros(data[i+1])*sc.steps[len(sc.steps)-1])
		now = max(now, o.latest)
	}
}

func compareDistinctCounts(t *testing.T, s *windows.Spec, state []byte, o *oracle, ahead event.Micros) {
	t.Helper()
	countAt := func(now event.Micros) event.Decimal {
		var all []event.Decimal
		for _, e := range o.events {
			if now < e.until && !slices.Contains(all, e.n) {
				all = append(all, e.n)
			}
		}
		return event.Decimal(len(all)) * event.One
	}
	if got, want := s.CountAt(state, o.latest+ahead), countAt(o.latest+ahead); got != want {
		t.Fatalf("%+v: CountAt(%d) = %d, want %d", s, o.latest+ahead, got, want)
	}
	moments := []event.Micros{o.latest}
	for _, e := range o.events {
		moments = append(moments, max(o.latest, e.until))
	}
	slices.Sort(moments)
	for _, limit := range []event.Decimal{event.One, 3 * event.One, 9 * event.One} {
		i := slices.IndexFunc(moments, func(now event.Micros) bool { return countAt(now) < limit })
		if got := s.Below(state, limit); got != moments[i] {
			t.Fatalf("%+v: Below(%d) = %d, want %d", s, limit, got, moments[i])
		}
	}
	if spent := s.Spent(state); countAt(spent) != 0 {
		t.Fatalf("%+v: Spent = %d, when it counts", s, spent)
	}
}

func compareDistinctSessions(t *testing.T, data []byte) {
	t.Helper()
	spec, now, steps := sessionFrom(data)
	spec = distinctly(spec)
	o := &naiveSessions{gap: spec.Gap, lateness: spec.Lateness, counts: func(s []happened) event.Decimal {
		values := map[event.Decimal]bool{}
		for _, e := range s {
			values[e.n] = true
		}
		return event.Decimal(len(values)) * event.One
	}}
	var state []byte
	for i := head; i+1 < len(data); i += 2 {
		now += event.Micros(int8(data[i])) * steps[int(data[i+1])/8%len(steps)]
		value := data[i+1] % 16
		want := o.add(happened{at: now, n: event.Decimal(value)})
		var got windows.Added
		state, got = spec.AddValue(state, now, hashOf(uint64(value)))
		if got.Known = false; got != want {
			t.Fatalf("%+v: AddValue(%d, %d) = %+v, want %+v", spec, now, value, got, want)
		}
		if err := spec.Check(state); err != nil {
			t.Fatalf("%+v: %v: % x", spec, err, state)
		}
		now = max(now, spec.Latest(state))
	}
}

// The arithmetic of estimates is the same on all machines: these are its results.
func TestEstimatesAreTheSameEverywhere(t *testing.T) {
	spec := distinctly(windows.Spec{Kind: windows.Tumbling, Per: event.FromDuration(time.Hour)})
	spec.Estimate = true
	var state []byte
	for i := range uint64(20_000) {
		var added windows.Added
		state, added = spec.AddValue(state, 0, hashOf(i))
		if want, ok := map[uint64]event.Decimal{1999: 1984, 9999: 9923, 19_999: 19_906}[i]; ok && added.Count != want*event.One {
			t.Errorf("%d values are estimated as %v, want %v", i+1, added.Count, want)
		}
	}
}

var raceDetector bool // see race_test.go

func TestAddValueAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates for the values' hashes")
	}
	for name, spec := range map[string]windows.Spec{
		"tumbling": perMinute(), "session": perSession(event.Second, event.Hour), "exact": exactly(event.Minute), "panes": inPanes(event.Minute, 0), "hopping": hoppingBy(event.Minute, event.Second),
	} {
		spec = distinctly(spec)
		if spec.Estimate = spec.Estimates(); spec.Validate() != nil {
			t.Fatal(name)
		}
		state, now := make([]byte, 0, spec.MaxBytes()), at("2026-11-21T10:00:00Z")
		value := uint64(0)
		allocs := testrun.Allocs(5000, func() {
			value++
			now += 20 * event.Millisecond
			state, _ = spec.AddValue(state, now, hashOf(value))
			if value%3000 == 0 {
				now += 1500 * event.Millisecond // another session, which the next late event joins
				state, _ = spec.AddValue(state, now, 7)
				now -= 750 * event.Millisecond
			}
			spec.Count(state)
			spec.Below(state, event.One)
			spec.Spent(state)
		})
		if allocs > 1 { // hashOf's
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}

// A state whose latest time is where its window ends is none.
func TestTheLatestTimeIsInTheCurrentWindow(t *testing.T) {
	start := at("2026-11-21T10:00:00Z")
	for name, spec := range map[string]windows.Spec{
		"tumbling": perMinute(), "calendar": civil(windows.Hour, "UTC"), "session": perSession(event.Minute, event.Hour),
	} {
		c := newCounter(t, distinctly(spec))
		c.state, _ = c.spec.AddValue(c.state, start, hashOf(1))
		from, end := c.spec.Bounds(c.state, start)
		const length = 10 // where it is in the state, behind a byte of how far the latest time is past the start
		if !bytes.HasPrefix(c.state[length-1:], binary.AppendUvarint([]byte{0}, uint64(end-from))) {
			t.Fatalf("%s: the state has another form: % x", name, c.state)
		}
		state := binary.LittleEndian.AppendUint64([]byte{c.state[0]}, uint64(end))
		state = binary.AppendUvarint(state, uint64(end-from))
		if err := c.spec.Check(append(state, c.state[length:]...)); err == nil {
			t.Errorf("%s: its latest time is its window's end", name)
		}
	}
}
