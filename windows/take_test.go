package windows_test

import (
	"math/rand/v2"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/windows"
)

func refundable(spec windows.Spec) windows.Spec {
	spec.Refunds = true
	return spec
}

func TestWhatIsTakenBackIsTakenFromItsOwnWindow(t *testing.T) {
	start := at("2026-11-21T10:00:00Z")
	for name, tt := range map[string]struct {
		spec   windows.Spec
		counts event.Decimal // after 2 of the first five are taken back
	}{
		"tumbling": {perMinute(), 7}, // they are in the minute before
		"exact":    {exactly(event.Minute), 10},
		"panes":    {inPanes(event.Minute, 0), 10},
		"hopping":  {hoppingBy(event.Minute, 20*event.Second), 10},
	} {
		c := newCounter(t, refundable(tt.spec))
		c.add(start+30*event.Second, 5)
		c.add(start+70*event.Second, 7)
		c.state = c.spec.Take(c.state, start+30*event.Second, 2*event.One)
		if got := c.spec.Count(c.state); got != tt.counts*event.One {
			t.Errorf("%s: %v are left, want %v", name, got, tt.counts)
		}
		// And no more than there was.
		c.state = c.spec.Take(c.state, start+70*event.Second, 100*event.One)
		if got := c.spec.Count(c.state); got != (tt.counts-7)*event.One {
			t.Errorf("%s: %v are left, want %v", name, got, tt.counts-7)
		}
		if name == "tumbling" {
			if got := c.add(start+31*event.Second, 1); got != (windows.Added{Ended: true, Count: 4 * event.One}) {
				t.Errorf("the minute before: %+v, want 4", got)
			}
		}
	}
}

// Of 2,000 clicks 1,024 are taken back, and one whose time has become one with others' long ago.
func TestAnExactWindowKnowsWhatIsLeft(t *testing.T) {
	t.Parallel()
	c := newCounter(t, refundable(exactly(event.Hour)))
	start := at("2026-11-21T10:00:00Z")
	for i := range event.Micros(2000) {
		c.add(start+i, 1)
	}
	for i := range event.Micros(windows.Remembered) {
		c.state = c.spec.Take(c.state, start+1999-i, event.One)
	}
	if got := c.spec.Count(c.state); got != 976*event.One {
		t.Errorf("%v are left, want 976", got)
	}
	c.state = c.spec.Take(c.state, start+5, event.One)
	if got := c.spec.Count(c.state); got != 975*event.One {
		t.Errorf("%v are left, want 975", got)
	}
	if len(c.state) > c.spec.MaxBytes() || c.spec.Check(c.state) != nil {
		t.Errorf("%d bytes, at most %d: %v", len(c.state), c.spec.MaxBytes(), c.spec.Check(c.state))
	}
}

func TestTakeEqualsTheOracle(t *testing.T) {
	for seed := range uint64(testrun.Depth(6_000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		data := story(r, 1+r.IntN(30))
		sc := []func([]byte) script{tumblingFrom, calendarFrom, exactFrom, panesFrom, hoppingFrom}[seed%5](data[:head])
		compareTaken(t, refundableScript(sc), data, r)
		if t.Failed() {
			t.Fatalf("story of rand.NewPCG(%d, 1)", seed)
		}
	}
}

func refundableScript(sc script) script {
	sc.spec.Refunds = true
	return sc
}

func compareTaken(t *testing.T, sc script, data []byte, r *rand.Rand) {
	t.Helper()
	if err := sc.spec.Validate(); err != nil {
		t.Fatal(err)
	}
	o := sc.oracle
	if o == nil {
		o = oracleOf(&sc.spec)
	}
	var state []byte
	now := sc.start
	for i := head; i+1 < len(data); i += 2 {
		now += event.Micros(int8(data[i])) * sc.steps[int(data[i+1])/8%len(sc.steps)]
		if sc.in != nil {
			now = sc.in(now)
		}
		n := event.Decimal(data[i+1]%8) * event.One
		want := o.add(now, n)
		var got windows.Added
		if state, got = sc.spec.Add(state, now, n); !agree(&sc.spec, got.Count, want.Count, o, o.latest) || got.Late != want.Late {
			t.Fatalf("%+v: Add(%d, %d) = %+v, want %+v", sc.spec, now, n, got, want)
		}
		if victim := &o.events[r.IntN(len(o.events))]; r.IntN(3) == 0 {
			n := min(victim.n, event.Decimal(1+r.IntN(4))*event.One)
			victim.n -= n
			state = sc.spec.Take(state, victim.at, n)
			compareState(t, &sc.spec, state, o, 0)
		}
		now = max(now, o.latest)
	}
}

func TestEmptyEmptiesOneWindow(t *testing.T) {
	start := at("2026-11-21T10:00:30Z")
	specs := specs()
	specs["distinct"], specs["distinct sessions"] = distinctly(perMinute()), distinctly(perSession(event.Minute, event.Hour))
	for name, spec := range specs {
		c := newCounter(t, spec)
		for i := range event.Micros(3) {
			c.state = addEither(&c.spec, c.state, start+i, event.One)
		}
		full := string(c.state)
		c.state = c.spec.Empty(c.state, false)
		if err := c.spec.Check(c.state); err != nil || c.spec.Count(c.state) != 0 || c.spec.Latest(c.state) < start+2 {
			t.Errorf("%s: emptied, it counts %v at %v: %v", name, c.spec.Count(c.state), c.spec.Latest(c.state).Time(), err)
		}
		if spec.Kind == windows.Sliding || spec.Kind == windows.Bucket || name == "calendar" {
			continue // there is no window before
		}
		c.state = addEither(&c.spec, []byte(full), start+80*event.Second, event.One)
		now := c.spec.Count(c.state)
		c.state = c.spec.Empty(c.state, true)
		if err := c.spec.Check(c.state); err != nil || c.spec.Count(c.state) != now {
			t.Errorf("%s: without the window before it counts %v, want %v: %v", name, c.spec.Count(c.state), now, err)
		}
		var late windows.Added
		if spec.Distinct {
			_, late = c.spec.AddValue(c.state, start, 77)
		} else {
			_, late = c.spec.Add(c.state, start, event.One)
		}
		if want := (windows.Added{Ended: true, Count: event.One}); late != want {
			t.Errorf("%s: the emptied window before: %+v, want %+v", name, late, want)
		}
	}
}

// The first moment of the window before is in it, and the last one of the window before that is not.
func TestTakeKnowsWhereTheWindowBeforeBegins(t *testing.T) {
	c := newCounter(t, refundable(perMinute()))
	start := at("2026-11-21T10:00:00Z")
	c.counts(start, 5, 5)
	c.counts(start+event.Minute, 1, 1)
	c.state = c.spec.Take(c.state, start-tick, event.One)
	c.countsEnded(start, 0, 5)
	c.state = c.spec.Take(c.state, start, event.One)
	c.countsEnded(start, 0, 4)
}
