package windows_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/windows"
)

// Fuzzed bytes are a Spec, and then a story: two bytes an event, how far from the latest one
// it is, and how much. The oracle hears the same story.

func FuzzTumbling(f *testing.F) { fuzz(f, tumblingFrom) }
func FuzzCalendar(f *testing.F) {
	loadPlaces() // ahead of the first story: one that takes ten seconds counts as hung
	fuzz(f, calendarFrom)
}
func FuzzSlidingExact(f *testing.F) { fuzz(f, exactFrom) }
func FuzzSlidingPanes(f *testing.F) { fuzz(f, panesFrom) }
func FuzzHopping(f *testing.F)      { fuzz(f, hoppingFrom) }

func TestTumblingEqualsTheOracle(t *testing.T)     { compareMany(t, 12_000, tumblingFrom) }
func TestCalendarEqualsTheOracle(t *testing.T)     { compareMany(t, 8_000, calendarFrom) }
func TestSlidingExactEqualsTheOracle(t *testing.T) { compareMany(t, 8_000, exactFrom) }
func TestSlidingPanesEqualsTheOracle(t *testing.T) { compareMany(t, 8_000, panesFrom) }
func TestHoppingEqualsTheOracle(t *testing.T)      { compareMany(t, 12_000, hoppingFrom) }

// script is a Spec, where its story begins, and by how much time moves in it.
type script struct {
	spec  windows.Spec
	start event.Micros
	steps []event.Micros
	whole bool

	oracle *oracle                         // unless the Spec says it all
	in     func(event.Micros) event.Micros // keeps times where the oracle knows them
}

const head = 6 // how many bytes a script takes

var (
	scales = []event.Micros{1, 7, event.Millisecond, event.Second}
	starts = []event.Micros{
		0, -1, day(2026, time.November, 21), day(9999, time.December, 31),
		day(1938, time.March, 1), day(1, time.January, 1),
	}
)

func tumblingFrom(b []byte) script {
	scale := pick(scales, b[0])
	return script{
		spec: windows.Spec{
			Kind: windows.Tumbling, Per: (1 + event.Micros(b[1])) * scale,
			Offset: event.Micros(int8(b[2])) * scale, Lateness: event.Micros(b[3]) * scale,
		},
		start: pick(starts, b[4]), steps: []event.Micros{1, scale},
	}
}

func calendarFrom(b []byte) script {
	p := pick(loadPlaces(), b[0])
	weekStarts := time.Weekday(b[1] / 5 % 2)
	s := script{
		spec: windows.Spec{
			Kind: windows.Calendar, Unit: windows.Hour + windows.Unit(b[1]%5), Zone: p.zone,
			WeekStarts: weekStarts, Lateness: event.Micros(b[2]) * 20 * event.Minute,
		},
		start: event.FromTime(p.odd) + event.Micros(int8(b[3]))*event.Day,
		steps: []event.Micros{1, event.Second, 5 * event.Minute, event.Hour, event.Day, 9 * event.Day},
	}
	if b[4]&1 == 1 {
		s.start = event.FromTime(p.odd) + event.Micros(int8(b[3]))*5*event.Minute
	}
	s.oracle = aligned(s.spec.Lateness, p.almanacs[weekStarts].window(s.spec.Unit))
	from, to := day(p.odd.Year()-1, time.January, 2), day(p.odd.Year()+1, time.January, 1)
	s.in = func(at event.Micros) event.Micros { return min(max(at, from), to) }
	return s
}

func exactFrom(b []byte) script {
	scale := pick(scales, b[0])
	return script{
		spec:  windows.Spec{Kind: windows.Sliding, Exact: true, Per: (1 + event.Micros(b[1])) * scale},
		start: pick(starts, b[4]), steps: []event.Micros{1, scale}, whole: true,
	}
}

func panesFrom(b []byte) script {
	scale := pick(scales, b[0])
	s := script{
		spec:  windows.Spec{Kind: windows.Sliding, Per: (1 + event.Micros(b[1])) * scale},
		start: pick(starts, b[4]), steps: []event.Micros{1, scale, 5 * scale},
	}
	if b[2] > 0 {
		s.spec.Resolution = min(s.spec.Per, max(event.Micros(b[2])*scale, s.spec.Per/200+1))
	}
	return s
}

func hoppingFrom(b []byte) script {
	scale := pick(scales, b[0])
	every := (1 + event.Micros(b[1]%40)) * scale
	s := script{
		spec: windows.Spec{
			Kind: windows.Hopping, Every: every, Per: (1 + event.Micros(b[2]%12)) * every,
			Offset: event.Micros(int8(b[3])) * scale, Lateness: event.Micros(b[5]) * scale,
		},
		start: pick(starts, b[4]), steps: []event.Micros{1, scale, every},
	}
	s.oracle = hopsOracle(&s.spec)
	return s
}

func fuzz(f *testing.F, from func([]byte) script) {
	f.Add([]byte("\x00\x0f\x00\x08\x00\x00\x01\x01\x0e\x02\x02\x03\xff\x09\xe0\x01"))
	f.Add([]byte("\x03\x3b\x05\x3c\x02\x00\x01\xfe\x10\x05\x20\x0d\xf0\x15\x7f\x1d\x90\x25"))
	f.Add([]byte("\x02\xff\x03\xff\x04\x01\x00\xff\x00\xff\x11\xf7\x70\xfe\x81\x42\x7f\x06\x7f\x06"))
	for seed := range uint64(16) {
		f.Add(story(rand.New(rand.NewPCG(seed, 0)), 60))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) >= head && len(data) <= 200 {
			compare(t, data, from)
		}
	})
}

func compareMany(t *testing.T, cases int, from func([]byte) script) {
	t.Helper()
	for seed := range uint64(testrun.Depth(cases)) {
		r := rand.New(rand.NewPCG(seed, 1))
		compare(t, story(r, 1+r.IntN(30)), from)
		if t.Failed() {
			t.Fatalf("story of rand.NewPCG(%d, 1)", seed)
		}
	}
}

// story is mostly small steps ahead: windows fill, and then move on.
func story(r *rand.Rand, events int) []byte {
	b := make([]byte, head, head+2*events)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	for range events {
		step := r.IntN(256)
		if r.IntN(3) > 0 {
			step = r.IntN(12)
		}
		b = append(b, byte(step), byte(r.Uint32()))
	}
	return b
}

func compare(t *testing.T, data []byte, from func([]byte) script) {
	t.Helper()
	sc := from(data[:head])
	if err := sc.spec.Validate(); err != nil {
		t.Fatal(err)
	}
	o := sc.oracle
	if o == nil {
		o = oracleOf(&sc.spec)
	}
	state, at := make([]byte, 0, sc.spec.MaxBytes()), sc.start
	memory := &state[:1][0]
	for i := head; i+1 < len(data); i += 2 {
		at += event.Micros(int8(data[i])) * sc.steps[int(data[i+1])/8%len(sc.steps)]
		if sc.in != nil {
			at = sc.in(at)
		}
		n := amount(data[i+1], sc.whole)
		want := o.add(at, n)
		var got windows.Added
		var spent event.Micros
		state, got, spent = sc.spec.AddSpent(state, at, n)
		if spent != sc.spec.Spent(state) {
			t.Fatalf("%+v: AddSpent(%d, %d) says Spent = %d, the state says %d", sc.spec, at, n, spent, sc.spec.Spent(state))
		}
		if !agree(&sc.spec, got.Count, want.Count, o, o.latest) || got.Late != want.Late || got.Ended != want.Ended {
			t.Fatalf("%+v: Add(%d, %d) = %+v, want %+v", sc.spec, at, n, got, want)
		}
		compareState(t, &sc.spec, state, o, event.Micros(data[i+1])*sc.steps[len(sc.steps)-1])
		if &state[0] != memory {
			t.Fatalf("%+v: a state of %d bytes did not fit into MaxBytes %d on the way", sc.spec, len(state), sc.spec.MaxBytes())
		}
		at = max(at, o.latest)
	}
	compareSpent(t, sc, state, data[head:])
}

// amount is 0 to 7, and now and then something extreme.
func amount(b byte, whole bool) event.Decimal {
	switch {
	case b == 255:
		return event.MaxDecimal / event.One * event.One
	case b == 254 && !whole:
		return event.MaxDecimal
	case b == 253:
		return 100 * event.One
	case b%16 == 9 && !whole:
		return event.One / 4 * event.Decimal(b)
	}
	return event.Decimal(b%8) * event.One
}

// agree: an exact sliding window may count more when it counts more than ExactLimit: what came within a
// sixteenth of its length before it.
func agree(s *windows.Spec, got, want event.Decimal, o *oracle, now event.Micros) bool {
	if s.Kind == windows.Sliding && s.Exact && want > windows.ExactLimit*event.One {
		part := (s.Per + 15) / 16
		want = min(want, event.MaxDecimal/event.One*event.One) // it counts whole numbers
		return got >= want && got <= o.sum(func(e happened) bool { return now < e.until+part })
	}
	return got == want
}

func compareState(t *testing.T, s *windows.Spec, state []byte, o *oracle, ahead event.Micros) {
	t.Helper()
	if err := s.Check(state); err != nil {
		t.Fatalf("%+v: %v: % x", s, err, state)
	}
	if got := s.Latest(state); got != o.latest {
		t.Fatalf("%+v: Latest = %d, want %d", s, got, o.latest)
	}
	if got, want := s.Count(state), o.countAt(o.latest); !agree(s, got, want, o, o.latest) {
		t.Fatalf("%+v: Count = %d, want %d", s, got, want)
	}
	now := o.latest + ahead
	if got, want := s.CountAt(state, now), o.countAt(now); !agree(s, got, want, o, now) {
		t.Fatalf("%+v: CountAt(%d) = %d, want %d", s, now, got, want)
	}
	for _, limit := range []event.Decimal{1, 3 * event.One, windows.ExactLimit * event.One} {
		if got, want := s.Below(state, limit), o.below(limit); got != want {
			t.Fatalf("%+v: Below(%d) = %d, want %d", s, limit, got, want)
		}
	}
	if spent := s.Spent(state); spent < s.Below(state, 1) {
		t.Fatalf("%+v: Spent = %d, before the count is zero", s, spent)
	}
}

// compareSpent goes on from Spent with the state and without it.
func compareSpent(t *testing.T, sc script, state, data []byte) {
	t.Helper()
	spent := sc.spec.Spent(state)
	if spent == event.NoTime {
		return
	}
	at := spent
	var empty []byte
	for i := 0; i+1 < min(len(data), 16); i += 2 {
		at = max(spent, at+event.Micros(int8(data[i]))*sc.steps[len(sc.steps)-1])
		n := amount(data[i+1], sc.whole)
		var a, b windows.Added
		state, a, _ = sc.spec.AddSpent(state, at, n)
		empty, b = sc.spec.Add(empty, at, n)
		if a != b || i == 0 && a.Late {
			t.Fatalf("%+v: from Spent %d on, at %d, with the state %+v, without it %+v", sc.spec, spent, at, a, b)
		}
	}
}

func pick[T any](from []T, b byte) T { return from[int(b)%len(from)] }

func day(year int, month time.Month, day int) event.Micros {
	return event.FromTime(time.Date(year, month, day, 0, 0, 0, 0, time.UTC))
}
