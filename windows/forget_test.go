package windows_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tallygate/tallygate/pipeline/event"
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
	for seed := range uint64(12_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		compareForgotten(t, uint8(seed), story(r, 1+r.IntN(40)))
		if t.Failed() {
			t.Fatalf("story of rand.NewPCG(%d, 1)", seed)
		}
	}
}

func compareForgotten(t *testing.T, kind uint8, data []byte) {
	t.Helper()
	sc := []func([]byte) script{tumblingFrom, calendarFrom, exactFrom, panesFrom, hoppingFrom}[kind%5](data[:head])
	if err := sc.spec.Validate(); err != nil {
		t.Fatal(err)
	}
	o := sc.oracle
	if o == nil {
		o = oracleOf(&sc.spec)
	}
	same := part(&sc.spec, o)
	var state []byte
	now := sc.start
	for i := head; i+1 < len(data); i += 2 {
		now += event.Micros(int8(data[i])) * sc.steps[int(data[i+1])/8%len(sc.steps)]
		if sc.in != nil {
			now = sc.in(now)
		}
		n := event.Decimal(data[i+1]%8) * event.One
		forgets := data[i+1]%8 == 7
		if forgets {
			n = 0
		}
		want := o.add(now, n)
		var got windows.Added
		if state, got = sc.spec.Add(state, now, n); !sameOrMore(&sc.spec, got.Count, want.Count) || got.Late != want.Late {
			t.Fatalf("%+v: Add(%d, %d) = %+v, want %+v", sc.spec, now, n, got, want)
		}
		if forgets && !got.Late {
			var until event.Micros
			state, until = sc.spec.Forget(state, now)
			if least := o.forget(now, same); until < least || until <= now {
				t.Fatalf("%+v: Forget(%d): until %d, and what was counted until %d is gone", sc.spec, now, until, least)
			}
		}
		if err := sc.spec.Check(state); err != nil {
			t.Fatalf("%+v: %v: % x", sc.spec, err, state)
		}
		if got, want := sc.spec.Count(state), o.countAt(o.latest); sc.spec.Latest(state) != o.latest || !sameOrMore(&sc.spec, got, want) {
			t.Fatalf("%+v: Count = %d at %d, want %d at %d", sc.spec, got, sc.spec.Latest(state), want, o.latest)
		}
		now = max(now, o.latest)
	}
	compareSpent(t, sc, state, data[head:])
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
		if state, _ = tt.spec.Forget(state, start+tt.to); tt.spec.Check(state) != nil || tt.spec.Latest(state) != start+40*second {
			t.Errorf("%s: %v at %d", name, tt.spec.Check(state), tt.spec.Latest(state))
		}
		if got := tt.spec.Count(state); got != tt.left*event.One {
			t.Errorf("%s: %v of %v are left, want %v", name, got, before, tt.left*event.One)
		}
	}
	if state, _ := new(windows.Spec).Forget(nil, 0); len(state) > 0 {
		t.Error("an empty counter has something to forget")
	}
}
