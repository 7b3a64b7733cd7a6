package windows_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/windows"
)

func perSession(gap, lateness event.Micros) windows.Spec {
	return windows.Spec{Kind: windows.Session, Gap: gap, Lateness: lateness}
}

func TestASessionEndsAGapAfterItsLastEvent(t *testing.T) {
	c := newCounter(t, perSession(event.Minute, event.Hour))
	start := at("2026-11-21T10:00:00Z")
	c.counts(start, 1, 1)
	c.counts(start+event.Minute-tick, 1, 2)
	c.isBelow(2, start+2*event.Minute-tick)
	c.isSpent(start + 2*event.Minute - tick)
	if from, to := c.spec.Bounds(c.state, start+event.Minute); from != start || to != start+2*event.Minute-tick {
		t.Errorf("the session is from %v to %v", from.Time(), to.Time())
	}
	// A gap apart is not less than a gap apart.
	c.counts(start+2*event.Minute-tick, 1, 1)
}

func TestALateEventMayJoinTwoSessions(t *testing.T) {
	c := newCounter(t, perSession(event.Minute, event.Hour))
	start := at("2026-11-21T10:00:00Z")
	c.counts(start, 2, 2)
	c.counts(start+90*event.Second, 3, 3)
	c.counts(start+45*event.Second, 1, 6)
	if from, _ := c.spec.Bounds(c.state, start+90*event.Second); from != start {
		t.Errorf("the session starts at %v, want %v", from.Time(), start.Time())
	}
}

func TestASessionIsHeldForAGapPastItsEnd(t *testing.T) {
	c := newCounter(t, perSession(event.Minute, event.Hour))
	start := at("2026-11-21T10:00:00Z")
	c.counts(start, 1, 1)
	c.counts(start+2*event.Minute-tick, 1, 1)
	c.countsEnded(start+30*event.Second, 1, 2)
	c.counts(start+150*event.Second, 1, 2) // a gap past 10:01:30
	c.tooLate(start + 20*event.Second)
}

func TestALateSessionOfItsOwnIsTheOneBefore(t *testing.T) {
	c := newCounter(t, perSession(event.Minute, event.Hour))
	start := at("2026-11-21T10:00:00Z")
	c.counts(start, 1, 1)
	c.countsEnded(start-event.Minute, 7, 7)
	c.tooLate(start - 2*event.Minute)
	c.countsEnded(start-event.Minute-tick, 1, 8)
	c.counts(start-1, 1, 10) // joins all three
}

// naiveSessions keeps every event of every session there ever was.
type naiveSessions struct {
	gap, lateness event.Micros
	sessions      [][]happened // by their times; the last is the current one
	counts        func([]happened) event.Decimal
}

func first(s []happened) event.Micros {
	return slices.MinFunc(s, func(a, b happened) int { return int(a.at - b.at) }).at
}
func last(s []happened) event.Micros {
	return slices.MaxFunc(s, func(a, b happened) int { return int(a.at - b.at) }).at
}

func (o *naiveSessions) add(e happened) windows.Added {
	n := len(o.sessions)
	if n == 0 || e.at >= last(o.sessions[n-1])+o.gap {
		o.sessions = append(o.sessions, []happened{e})
		return windows.Added{Count: o.counts([]happened{e})}
	}
	cur := o.sessions[n-1]
	latest := last(cur)
	held := func(end event.Micros) bool { return latest < end+min(o.gap, o.lateness) }
	near := func(s []happened) bool { return e.at > first(s)-o.gap && e.at < last(s)+o.gap }
	late := windows.Added{Late: true, Count: o.counts(cur)}
	if near(cur) {
		cur = append(slices.Clone(cur), e)
		if n > 1 && near(o.sessions[n-2]) {
			if held(last(o.sessions[n-2]) + o.gap) {
				cur = append(cur, o.sessions[n-2]...)
			}
			n--
		}
		o.sessions = append(o.sessions[:n-1:n-1], cur)
		return windows.Added{Count: o.counts(cur)}
	}
	for i := n - 2; i >= 0; i-- {
		switch s := o.sessions[i]; {
		case near(s) && (i < n-2 || !held(last(s)+o.gap)):
			return late
		case near(s):
			o.sessions[i] = append(slices.Clone(s), e)
			return windows.Added{Ended: true, Count: o.counts(o.sessions[i])}
		case e.at < first(s):
			return late
		}
	}
	if !held(e.at + o.gap) {
		return late
	}
	o.sessions = slices.Insert(o.sessions, n-1, []happened{e})
	return windows.Added{Ended: true, Count: o.counts([]happened{e})}
}

func total(s []happened) (sum event.Decimal) {
	for _, e := range s {
		sum = sum.Plus(e.n)
	}
	return sum
}

func FuzzSession(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(story(rand.New(rand.NewPCG(seed, 0)), 60))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) >= head && len(data) <= 200 {
			compareSessions(t, data)
		}
	})
}

func TestSessionEqualsTheOracle(t *testing.T) {
	for seed := range uint64(testrun.Depth(12_000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		compareSessions(t, story(r, 1+r.IntN(30)))
		if t.Failed() {
			t.Fatalf("story of rand.NewPCG(%d, 1)", seed)
		}
	}
}

func sessionFrom(b []byte) (windows.Spec, event.Micros, []event.Micros) {
	scale := pick(scales, b[0])
	spec := perSession((1+event.Micros(b[1])%32)*scale, event.Micros(b[3])/4*scale)
	return spec, pick(starts, b[4]), []event.Micros{1, scale, 5 * scale}
}

func compareSessions(t *testing.T, data []byte) {
	t.Helper()
	spec, now, steps := sessionFrom(data)
	if err := spec.Validate(); err != nil {
		t.Fatal(err)
	}
	o := &naiveSessions{gap: spec.Gap, lateness: spec.Lateness, counts: total}
	state := make([]byte, 0, spec.MaxBytes())
	memory := &state[:1][0]
	for i := head; i+1 < len(data); i += 2 {
		now += event.Micros(int8(data[i])) * steps[int(data[i+1])/8%len(steps)]
		n := amount(data[i+1], false)
		want := o.add(happened{at: now, n: n})
		var got windows.Added
		if state, got = spec.Add(state, now, n); got != want {
			t.Fatalf("%+v: Add(%d, %d) = %+v, want %+v", spec, now, n, got, want)
		}
		if err := spec.Check(state); err != nil {
			t.Fatalf("%+v: %v: % x", spec, err, state)
		}
		cur := o.sessions[len(o.sessions)-1]
		latest := last(cur)
		if spec.Latest(state) != latest || spec.Count(state) != total(cur) || spec.CountAt(state, latest+spec.Gap) != 0 {
			t.Fatalf("%+v: %d counts at %d, want %d at %d", spec, spec.Count(state), spec.Latest(state), total(cur), latest)
		}
		if from, to := spec.Bounds(state, latest); from != first(cur) || to != latest+spec.Gap {
			t.Fatalf("%+v: from %d to %d, want from %d to %d", spec, from, to, first(cur), latest+spec.Gap)
		}
		if &state[0] != memory {
			t.Fatalf("%+v: a state of %d bytes did not fit into MaxBytes %d", spec, len(state), spec.MaxBytes())
		}
		now = max(now, latest)
	}
	compareSpent(t, script{spec: spec, steps: steps}, state, data[head:])
}
