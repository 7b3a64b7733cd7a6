package windows_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/windows"
)

// part tells whether two moments are in one part of a counter: what is forgotten at one of them takes
// what was counted at the other.
func part(s *windows.Spec, o *oracle) func(a, b event.Micros) bool {
	length, offset := s.Resolution, event.Micros(0)
	switch {
	case s.Kind == windows.Hopping:
		length, offset = s.Every, s.Offset
	case s.Kind != windows.Sliding:
		return o.same
	case s.Exact:
		length = 1
	}
	floor := func(at event.Micros) event.Micros {
		return at - ((at-offset)%length+length)%length
	}
	return func(a, b event.Micros) bool { return floor(a) == floor(b) }
}

// forget takes events out that happened up to a moment, or in its part.
func (o *oracle) forget(to event.Micros, same func(a, b event.Micros) bool) (until event.Micros) {
	until = to + 1
	o.events = slices.DeleteFunc(o.events, func(e happened) bool {
		gone := e.at <= to || same(e.at, to)
		if gone {
			until = max(until, e.at+1)
		}
		return gone
	})
	o.events = append(o.events, happened{to, o.stays(to), 0})
	return until
}

func FuzzForget(f *testing.F) {
	loadPlaces()
	for seed := range uint64(16) {
		f.Add(uint8(seed), story(rand.New(rand.NewPCG(seed, 0)), 60))
	}
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		if len(data) >= head && len(data) <= 200 {
			compareForgotten(t, kind, data)
		}
	})
}

func TestForgetEqualsTheOracle(t *testing.T) {
	for seed := range uint64(testrun.Depth(12_000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		compareForgotten(t, uint8(seed), story(r, 1+r.IntN(40)))
		if t.Failed() {
			t.Fatalf("story of rand.NewPCG(%d, 1)", seed)
		}
	}
}

// forgetsHow are the kinds of counters that are compared with an oracle of what they forget.
var forgetsHow = []func([]byte) script{tumblingFrom, calendarFrom, exactFrom, panesFrom, hoppingFrom}

func compareForgotten(t *testing.T, kind uint8, data []byte) {
	t.Helper()
	distinct := kind/8%2 == 1
	if kind%8 >= 5 {
		compareForgottenSessions(t, distinct, data)
		return
	}
	sc := forgetsHow[kind%8](data[:head])
	o := sc.oracle
	if sc.spec.Distinct = distinct; distinct && sc.spec.Kind == windows.Hopping { // ended windows are not held
		o.held = func(at, latest event.Micros) bool { return latest < o.stays(at) }
		o.same = func(_, _ event.Micros) bool { return true }
		o.judge = nil
	}
	if err := sc.spec.Validate(); err != nil {
		t.Fatal(err)
	}
	if o == nil {
		o = oracleOf(&sc.spec)
	}
	same := part(&sc.spec, o)
	if distinct && sc.spec.Kind == windows.Hopping {
		same = part(&sc.spec, hopsOracle(&sc.spec))
	}
	var state []byte
	now := sc.start
	for i := head; i+1 < len(data); i += 2 {
		now += event.Micros(int8(data[i])) * sc.steps[int(data[i+1])/8%len(sc.steps)]
		if sc.in != nil {
			now = sc.in(now)
		}
		n := event.Decimal(data[i+1]%8) * event.One
		var got, want windows.Added
		switch forgets := n == 7*event.One; {
		case forgets && distinct && len(state) == 0: // it has no time
			continue
		case forgets:
			var until event.Micros
			want = o.add(now, 0)
			if state, got, until = sc.spec.Forget(state, now); !got.Late {
				if least := o.forget(now, same); !distinct && until < least || until <= now {
					t.Fatalf("%+v: Forget(%d): until %d, and what was counted until %d is gone", sc.spec, now, until, least)
				}
			}
			got.Count, got.Known = want.Count, false
		case distinct:
			want = o.addValue(now, n+event.One)
			state, got = sc.spec.AddValue(state, now, uint64(n+event.One))
		default:
			want = o.add(now, n)
			state, got = sc.spec.Add(state, now, n)
		}
		if !sameOrMore(&sc.spec, got.Count, want.Count) || got.Late != want.Late || got.Ended != want.Ended || got.Known != want.Known {
			t.Fatalf("%+v: at %d of %v: %+v, want %+v", sc.spec, now, n, got, want)
		}
		if err := sc.spec.Check(state); err != nil {
			t.Fatalf("%+v: %v: % x", sc.spec, err, state)
		}
		count := o.countAt(o.latest)
		if distinct {
			count = o.valuesNow()
		}
		if got := sc.spec.Count(state); sc.spec.Latest(state) != o.latest || !sameOrMore(&sc.spec, got, count) {
			t.Fatalf("%+v: Count = %d at %d, want %d at %d", sc.spec, got, sc.spec.Latest(state), count, o.latest)
		}
		now = max(now, o.latest)
	}
	if !distinct {
		compareSpent(t, sc, state, data[head:])
	}
}

// forget is Forget. A moment that is not later than the latest one is in no session, and makes none.
func (o *naiveSessions) forget(to event.Micros) windows.Added {
	tried := *o
	tried.sessions = slices.Clone(o.sessions)
	added := tried.add(happened{at: to})
	if n := len(o.sessions); n == 0 || to > last(o.sessions[n-1]) {
		o.sessions = tried.sessions
	}
	for i, s := range o.sessions {
		if added.Late || first(s) > to {
			continue
		}
		o.sessions[i] = slices.Clone(s)
		for j := range s {
			o.sessions[i][j].n = 0
		}
	}
	return added
}

func compareForgottenSessions(t *testing.T, distinct bool, data []byte) {
	t.Helper()
	spec, now, steps := sessionFrom(data)
	o := &naiveSessions{gap: spec.Gap, lateness: spec.Lateness, counts: total}
	if spec.Distinct = distinct; distinct {
		o.counts = different
	}
	if err := spec.Validate(); err != nil {
		t.Fatal(err)
	}
	var state []byte
	for i := head; i+1 < len(data); i += 2 {
		now += event.Micros(int8(data[i])) * steps[int(data[i+1])/8%len(steps)]
		n := event.Decimal(data[i+1]%8) * event.One
		var got, want windows.Added
		switch forgets := n == 7*event.One; {
		case forgets && distinct && len(state) == 0: // it has no time
			continue
		case forgets:
			want = o.forget(now)
			state, got, _ = spec.Forget(state, now)
			got.Count = want.Count
		case distinct:
			n += event.One
			want = o.add(happened{at: now, n: n})
			state, got = spec.AddValue(state, now, uint64(n))
		default:
			want = o.add(happened{at: now, n: n})
			state, got = spec.Add(state, now, n)
		}
		if got.Known = false; got != want {
			t.Fatalf("%+v: at %d of %v: %+v, want %+v", spec, now, n, got, want)
		}
		if err := spec.Check(state); err != nil {
			t.Fatalf("%+v: %v: % x", spec, err, state)
		}
		cur := o.sessions[len(o.sessions)-1]
		from, _ := spec.Bounds(state, last(cur))
		if got, want := spec.Count(state), o.counts(cur); got != want || spec.Latest(state) != last(cur) || from != first(cur) {
			t.Fatalf("%+v: Count = %d at %d from %d, want %d at %d from %d", spec, got, spec.Latest(state), from, want, last(cur), first(cur))
		}
		now = max(now, last(cur))
	}
}

// different counts a session's values; 0 is none.
func different(s []happened) event.Decimal {
	values := map[event.Decimal]bool{}
	for _, e := range s {
		values[e.n] = e.n > 0
	}
	delete(values, 0)
	return event.Decimal(len(values)) * event.One
}

// valuesNow counts the values at the latest time; 0 is none.
func (o *oracle) valuesNow() event.Decimal {
	return different(slices.DeleteFunc(slices.Clone(o.events), func(e happened) bool { return o.latest >= e.until }))
}

// sameOrMore: an exact window decides up to ExactLimit only.
func sameOrMore(s *windows.Spec, got, want event.Decimal) bool {
	const limit = windows.ExactLimit * event.One
	return got == want || s.Exact && want > limit && got >= want
}

// What came up to the moment is gone, what came later is not, of kinds without an oracle of their own here.
func TestWhatCameUpToAMomentIsForgotten(t *testing.T) {
	start := at("2026-11-21T10:00:00Z")
	second := event.Second
	for name, tt := range map[string]struct {
		spec windows.Spec
		to   event.Micros
		left event.Decimal // of three events, at 0 s, 20 s and 40 s
	}{
		"session":                        {perSession(event.Minute, event.Hour), 20 * second, 0},
		"a session before":               {perSession(10*second, event.Hour), 20 * second, 1},
		"bucket":                         {bucketOf(event.One, event.Hour), 20 * second, 0},
		"distinct":                       {distinctly(exactly(event.Minute)), 20 * second, 1},
		"distinct, all of it":            {distinctly(exactly(event.Minute)), 40 * second, 0},
		"distinct by panes":              {distinctly(inPanes(event.Minute, 10*second)), 22 * second, 1},
		"distinct by longer panes":       {distinctly(inPanes(event.Minute, 30*second)), 22 * second, 1},
		"distinct hopping":               {distinctly(hoppingBy(event.Minute, 20*second)), 22 * second, 1},
		"distinct of a minute":           {distinctly(perMinute()), 20 * second, 0},
		"distinct of a minute before":    {distinctly(perMinute()), -second, 3},
		"distinct of a session":          {distinctly(perSession(event.Minute, event.Hour)), 20 * second, 0},
		"distinct of the session before": {distinctly(perSession(10*second, event.Hour)), 20 * second, 1},
	} {
		if err := tt.spec.Validate(); err != nil {
			t.Fatal(err)
		}
		var state []byte
		for i := range event.Micros(3) {
			if tt.spec.Distinct {
				state, _ = tt.spec.AddValue(state, start+20*i*second, uint64(i))
			} else {
				state, _ = tt.spec.Add(state, start+20*i*second, event.One)
			}
		}
		state, _ = tt.spec.Add(state, start+tt.to, 0)
		before := tt.spec.Count(state)
		if state, _, _ = tt.spec.Forget(state, start+tt.to); tt.spec.Check(state) != nil || tt.spec.Latest(state) != start+40*second {
			t.Errorf("%s: %v at %d", name, tt.spec.Check(state), tt.spec.Latest(state))
		}
		if got := tt.spec.Count(state); got != tt.left*event.One {
			t.Errorf("%s: %v of %v are left, want %v", name, got, before, tt.left*event.One)
		}
	}
	for name, spec := range map[string]windows.Spec{"counts": perMinute(), "values": distinctly(perMinute())} {
		if state, added, until := spec.Forget(nil, start); spec.Count(state) != 0 || added.Late || until <= start {
			t.Errorf("%s: an empty counter has something to forget: % x, %+v, until %d", name, state, added, until)
		}
	}
}
