package rules

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/verdict"
	"github.com/tallygate/tallygate/windows"
)

// dice returns a number in [0, n).
type dice func(n int) int

// TestModelManySteps compares Step with the model over long random timelines. A failure
// names its seed: go test -run TestModelManySteps/seed=N.
func TestModelManySteps(t *testing.T) {
	t.Parallel()
	const steps = 500
	set := modelSet(t)
	for seed := range testrun.Depth(100) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), 1))
			compareWithModel(t, set, rng.IntN, steps)
		})
	}
}

// TestModelProperty is the same on timelines that rapid can make short.
func TestModelProperty(t *testing.T) {
	set := modelSet(t)
	rapid.Check(t, func(t *rapid.T) {
		roll := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "roll") }
		compareWithModel(t, set, roll, 1+roll(60))
	})
}

// FuzzModel is the same on timelines that a coverage-guided fuzzer finds.
func FuzzModel(f *testing.F) {
	set := modelSet(f)
	f.Add([]byte("some events, and some more of them, some late"))
	f.Fuzz(func(t *testing.T, data []byte) {
		i := 0
		roll := func(n int) int {
			if i++; i > len(data) {
				return 0
			}
			return int(data[i-1]) % n
		}
		compareWithModel(t, set, roll, len(data)/4)
	})
}

// modelSet has each kind of window, as a quota and as a penalty, on a scale on which short
// timelines reach all of their ends.
func modelSet(t testing.TB) *Set {
	shanghai, newYork := zone(t, "Asia/Shanghai"), zone(t, "America/New_York")
	late := 30 * event.Minute
	specs := []windows.Spec{
		{Kind: windows.Sliding, Per: 5 * event.Second, Exact: true},
		{Kind: windows.Sliding, Per: event.Minute, Resolution: event.Second},
		{Kind: windows.Sliding, Per: 7 * event.Second, Resolution: 7 * event.Second / 60},
		{Kind: windows.Tumbling, Per: 10 * event.Second},
		{Kind: windows.Tumbling, Per: 2 * event.Hour, Offset: 11 * event.Minute},
		{Kind: windows.Calendar, Unit: windows.Hour, Zone: newYork},
		{Kind: windows.Calendar, Unit: windows.Day, Zone: shanghai},
		{Kind: windows.Calendar, Unit: windows.Day, Zone: newYork},
		{Kind: windows.Hopping, Per: 20 * event.Second, Every: 5 * event.Second},
		{Kind: windows.Hopping, Per: 2 * event.Hour, Every: 10 * event.Minute, Offset: 11 * event.Second},
		{Kind: windows.Hopping, Per: 10 * event.Second, Every: 10 * event.Second},
	}
	var limits []*Limit
	for i, spec := range specs {
		spec.Lateness = late
		allowed := event.Decimal(3+i) * event.One
		for _, then := range []Then{{UntilReset: true}, {Steps: []event.Micros{2 * event.Second}}, {Steps: []event.Micros{10 * event.Minute}}} {
			rule := &Rule{Name: fmt.Sprintf("r%d", len(limits)), Then: then}
			limits = append(limits, &Limit{Rule: rule, Name: rule.Name, Limit: allowed, Window: spec, Grain: 700 * event.Millisecond, Quota: len(limits)%2 == 0})
		}
	}
	set := handmadeSet(t, limits...)
	set.RecentIDs, set.RecentFor = 8, 3*event.Second
	return set
}

// tester is the common part of *testing.T and *rapid.T.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// compareWithModel steps a key through a random timeline, and the model beside it.
func compareWithModel(t tester, set *Set, roll dice, steps int) {
	t.Helper()
	stepper, model := set.NewStepper(), newModel(set)
	now := event.FromTime(time.Date(2026, 3, 8, 6, 50, 0, 0, time.UTC)) // ten minutes before New York's clocks change
	var state []byte
	spent := event.NoTime
	for i := range steps {
		in := randomInput(set, roll, &now, i)
		if spent != event.NoTime && now-latestLate >= spent && roll(2) == 0 {
			state = nil // as the owner does with a key that fell silent
		}
		next, res := stepper.Step(nil, state, in)
		spent = res.SpentAt
		repeat, late, changes := model.step(in)
		if res.Repeat != repeat || res.Late != late {
			t.Fatalf("step %d, %+v: repeat %v, late %d; want %v, %d", i, in, res.Repeat, res.Late, repeat, late)
		}
		if got, want := set.bare(res.Changes), set.bare(changes); !slices.Equal(got, want) {
			t.Fatalf("step %d, %+v: changes (- the model's):\n%s", i, in, cmp.Diff(want, got))
		}
		if got, want := bareAbove(stepper.Above()), bareAbove(model.above); !slices.Equal(got, want) {
			t.Fatalf("step %d, %+v: above their limits %v, want %v", i, in, got, want)
		}
		if got, want := bareLeft(stepper.Left()), bareLeft(model.left); !slices.Equal(got, want) {
			t.Fatalf("step %d, %+v: left (- the model's):\n%s", i, in, cmp.Diff(want, got))
		}
		if err := CheckState(next); err != nil {
			t.Fatalf("step %d, %+v: %v", i, in, err)
		}
		if err := set.Check(next); err != nil {
			t.Fatalf("step %d, %+v: %v", i, in, err)
		}
		compareCounts(t, set, model, next, i)
		state = next
	}
}

// bareVerdict holds the model's fields of a verdict.
type bareVerdict struct {
	Rule         string
	Count        event.Decimal
	Since, Until event.Micros
	Cause        verdict.Cause
}

func (s *Set) bare(changes []verdict.Verdict) (out []bareVerdict) {
	for _, v := range changes {
		out = append(out, bareVerdict{v.Rule, v.Count, v.Since, v.Until, v.Cause})
	}
	return out
}

// bareAbove lists the limits that an event counted above, in the order of their names: that of a Step is the state's.
func bareAbove(all []Above) (out []string) {
	for _, a := range all {
		out = append(out, fmt.Sprint(a.Limit.Name, " ", a.Shadow, " ", a.Since))
	}
	slices.Sort(out)
	return out
}

// bareLeft lists the remainders by limit, in the order of their names.
func bareLeft(all []Left) (out []string) {
	for _, l := range all {
		out = append(out, fmt.Sprintf("%s %d of %d, from %d to %d", l.Limit.Name, l.Count, l.Of, l.Since, l.Until))
	}
	slices.Sort(out)
	return out
}

func compareCounts(t tester, set *Set, m *model, state []byte, i int) {
	t.Helper()
	k, err := keystate.Read(state)
	if err != nil {
		t.Fatalf("step %d: %v", i, err)
	}
	if k.Latest != m.latest {
		t.Fatalf("step %d: the latest time is %v, want %v", i, k.Latest.Time(), m.latest.Time())
	}
	for rest := k.Sections; len(rest) > 0; {
		sec, _, window, more, err := k.NextSection(rest)
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		rest = more
		l := m.limits[set.byHash.of(sec.Hash())]
		if got, want := l.Window.Count(window), l.count(l.latest); got != want {
			t.Fatalf("step %d, %s: the count is %d, want %d", i, l.Name, got, want)
		}
	}
}

// latestLate is more than any random event is late.
const latestLate = 81 * event.Minute

// randomInput moves now on, or not, and makes an event at it or before it.
func randomInput(set *Set, roll dice, now *event.Micros, i int) Input {
	steps := []event.Micros{0, 1, event.Millisecond, 300 * event.Millisecond, event.Second, 1_234_567, 4 * event.Second, event.Minute}
	*now += steps[roll(len(steps))]
	if roll(20) == 0 {
		*now += []event.Micros{9 * event.Minute, event.Hour, 13 * event.Hour, 50 * event.Hour}[roll(4)]
	}
	in := Input{Key: []byte("uid=u1"), At: *now}
	if roll(5) == 0 {
		in.At -= event.Micros(1+roll(20)) * []event.Micros{1, 500 * event.Millisecond, 4 * event.Minute}[roll(3)]
	}
	switch roll(4) {
	case 0: // no id
	case 1:
		in.ID = fmt.Sprintf("again-%d", roll(12))
	default:
		in.ID = fmt.Sprintf("id-%d", i)
	}
	in.Cause = verdict.Cause{ID: in.ID, Partition: 3, Offset: int64(i)}
	for _, l := range set.Limits {
		if roll(3) == 0 {
			continue
		}
		amounts := []event.Decimal{0, event.One, event.One, event.One, 2 * event.One, 9 * event.One}
		in.Hits = append(in.Hits, Hit{Limit: l, Amount: amounts[roll(len(amounts))]})
	}
	return in
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// handmadeSet is a set of limits that were not compiled: those of one key shape, uid.
func handmadeSet(t testing.TB, limits ...*Limit) *Set {
	t.Helper()
	set := &Set{Shapes: []*KeyShape{{Dims: []string{"uid"}, HasUID: true}}, Limits: limits}
	for i, l := range limits {
		l.Index, l.Hash = i, SectionHash{byte(i), 1, 2, 3, 4, 5}
		l.Rule.Shape, l.Rule.Limits = set.Shapes[0], []*Limit{l}
		if l.PerMax = l.Window.Per; l.Window.Kind == windows.Calendar {
			l.PerMax = spans[l.Window.Unit][1]
		}
		if err := l.Window.Validate(); err != nil {
			t.Fatal(err)
		}
		set.Rules = append(set.Rules, l.Rule)
		set.byHash.put(l.Hash, l)
	}
	set.finish()
	return set
}
