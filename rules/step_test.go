package rules

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/verdict"
	"github.com/tallygate/tallygate/windows"
)

// noon begins most timelines.
var noon = event.FromTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))

// fiveLimits is a set as shops have: a search limit over a sliding minute, a civil day in
// Shanghai, a tumbling minute, a sliding hour, and bytes in a tumbling hour.
func fiveLimits(t testing.TB) *Set {
	limit := func(name string, allowed event.Decimal, then Then, w windows.Spec) *Limit {
		w.Lateness = event.Hour
		r := &Rule{Name: name, Then: then, APIs: []string{name + ".*"}}
		r.Then.Action = verdict.ActBlock
		return &Limit{Rule: r, Name: name, Limit: allowed * event.One, Window: w, Grain: event.Second}
	}
	quota := Then{UntilReset: true}
	set := handmadeSet(t,
		limit("search", 100, Then{Steps: []event.Micros{5 * event.Minute}}, windows.Spec{Kind: windows.Sliding, Per: event.Minute}),
		limit("orders", 3, quota, windows.Spec{Kind: windows.Calendar, Unit: windows.Day, Zone: zone(t, "Asia/Shanghai")}),
		limit("burst", 50, quota, windows.Spec{Kind: windows.Tumbling, Per: event.Minute}),
		limit("writes", 1000, quota, windows.Spec{Kind: windows.Sliding, Per: event.Hour}),
		limit("bytes", 1<<30, Then{Steps: []event.Micros{event.Minute}}, windows.Spec{Kind: windows.Tumbling, Per: event.Hour}),
	)
	set.RecentIDs, set.RecentFor, set.MaxLateness = 64, 10*event.Minute, event.Hour
	return set
}

// unitHits is one unit for each of the limits.
func unitHits(limits ...*Limit) (out []Hit) {
	for _, l := range limits {
		out = append(out, Hit{Limit: l, Amount: event.One})
	}
	return out
}

func TestStateOfAQuietKeyIsSmall(t *testing.T) {
	set := fiveLimits(t)
	p := set.NewStepper()
	var state []byte
	for i := range 3 {
		state, _ = p.Step(nil, state, Input{
			Key: []byte("uid=42"), At: noon + event.Micros(i)*7*event.Second, ID: fmt.Sprint("id-", i), Hits: unitHits(set.Limits...),
		})
	}
	if len(state) > 200 {
		t.Errorf("three events under five limits take %d bytes, want at most 200", len(state))
	}
	t.Logf("three events under five limits: %d bytes", len(state))
}

func TestStepDoesNotAllocate(t *testing.T) {
	set := fiveLimits(t)
	ids := make([]string, 100) // more than a key remembers
	for i := range ids {
		ids[i] = fmt.Sprint("id-", i)
	}
	for name, amount := range map[string]event.Decimal{"within the limits": event.One / 1000, "over all of them": 2 << 30 * event.One} {
		t.Run(name, func(t *testing.T) {
			p := set.NewStepper()
			in := Input{Key: []byte("uid=42"), At: noon, Hits: unitHits(set.Limits...), Cause: verdict.Cause{ID: "c"}}
			for i := range in.Hits {
				in.Hits[i].Amount = amount
			}
			state, next := make([]byte, 0, 4096), make([]byte, 0, 4096)
			i := 0
			step := func() {
				i++
				in.At, in.ID = in.At+1, ids[i%len(ids)]
				var res Result
				if next, res = p.Step(next[:0], state, in); res.Repeat {
					t.Fatalf("step %d is a repeat", i)
				}
				state, next = next, state
			}
			for range 100 {
				step()
			}
			if allocs := testrun.Allocs(1000, step); allocs != 0 {
				t.Errorf("a step allocates %v times", allocs)
			}
		})
	}
}

func TestRepeatedIDChangesNothing(t *testing.T) {
	set := fiveLimits(t)
	p := set.NewStepper()
	in := Input{Key: []byte("uid=42"), At: noon, ID: "a", Hits: unitHits(set.Limits...)}
	state, first := p.Step(nil, nil, in)

	in.At += 9*event.Minute + 59*event.Second
	again, res := p.Step([]byte("head"), state, in)
	if !res.Repeat || !bytes.Equal(again, append([]byte("head"), state...)) {
		t.Errorf("a repeat after 9m59s: Repeat is %v, and the state changed", res.Repeat)
	}
	if res.SpentAt != first.SpentAt {
		t.Errorf("a repeat moved SpentAt from %v to %v", first.SpentAt, res.SpentAt)
	}

	in.At = noon + 10*event.Minute
	if _, res = p.Step(nil, state, in); res.Repeat {
		t.Error("after ten minutes of the key's time the id is still a repeat")
	}
}

func TestOnlyTheLatestIDsAreRemembered(t *testing.T) {
	set := fiveLimits(t)
	p := set.NewStepper()
	var state []byte
	in := Input{Key: []byte("uid=42"), At: noon, Hits: unitHits(set.Limits[0])}
	for i := range 65 {
		in.ID = fmt.Sprint(i)
		state, _ = p.Step(nil, state, in)
	}
	for id, want := range map[string]bool{"0": false, "1": true, "64": true} {
		in.ID = id
		if _, res := p.Step(nil, state, in); res.Repeat != want {
			t.Errorf("of 65 ids, is %s a repeat? %v, want %v", id, res.Repeat, want)
		}
	}
}

func TestSectionsOfRemovedLimitsAreDropped(t *testing.T) {
	set := fiveLimits(t)
	state, _ := set.NewStepper().Step(nil, nil, Input{Key: []byte("uid=42"), At: noon, Hits: unitHits(set.Limits...)})

	removed := set.Limits[1]
	set.byHash.put(removed.Hash, nil)
	in := Input{Key: []byte("uid=42"), At: noon, Hits: unitHits(set.Limits[4], set.Limits[2])}
	state, _ = set.NewStepper().Step(nil, state, in)

	var got []byte
	k, err := keystate.Read(state)
	if err != nil {
		t.Fatal(err)
	}
	for rest := k.Sections; len(rest) > 0; {
		sec, more, ok := keystate.Cut(rest)
		if !ok {
			t.Fatal("a section is cut off")
		}
		rest = more
		got = append(got, sec.Hash()[0])
	}
	if want := []byte{0, 2, 3, 4}; !bytes.Equal(got, want) {
		t.Errorf("sections %v, want %v: without the removed one, in their old order", got, want)
	}
}

func TestVerdictSaysWhoAndWhat(t *testing.T) {
	set := fiveLimits(t)
	set.Limits[0].Rule.Mode = verdict.Shadow
	in := Input{
		Key: []byte("attrs.shop=A%26B&uid=42"), At: noon, ID: "e1",
		Hits:  []Hit{{Limit: set.Limits[0], Amount: 101 * event.One}},
		Cause: verdict.Cause{ID: "e1", Partition: 3, Offset: 118},
	}
	_, res := set.NewStepper().Step(nil, nil, in)
	want := []verdict.Verdict{{
		Rule: "search", Key: []event.Dim{{Name: "attrs.shop", Value: "A&B"}, {Name: "uid", Value: "42"}},
		State: verdict.Block, Mode: verdict.Shadow, Action: verdict.ActBlock, APIs: []string{"search.*"},
		Count: 101 * event.One, Limit: 100 * event.One,
		Since: noon, Until: noon + 5*event.Minute, Cause: in.Cause,
	}}
	if diff := cmp.Diff(want, res.Changes); diff != "" {
		t.Errorf("changes (- want):\n%s", diff)
	}
}

func TestLateEventsAreCountedAsLate(t *testing.T) {
	set := fiveLimits(t)
	p := set.NewStepper()
	state, _ := p.Step(nil, nil, Input{Key: []byte("uid=42"), At: noon + 30*event.Minute, Hits: unitHits(set.Limits...)})
	late := Input{Key: []byte("uid=42"), At: noon + 25*event.Minute, Hits: unitHits(set.Limits...)}
	_, res := p.Step(nil, state, late)
	if res.Late != 2 {
		t.Errorf("five minutes late is too late for %d windows, want 2: the sliding and the tumbling minute", res.Late)
	}
}

func TestCheckStateKnowsVersions(t *testing.T) {
	set := fiveLimits(t)
	state, _ := set.NewStepper().Step(nil, nil, Input{Key: []byte("uid=42"), At: noon, ID: "a", Hits: unitHits(set.Limits...)})
	if err := errors.Join(set.Check(nil), set.Check(state)); err != nil {
		t.Errorf("a good state: %v", err)
	}
	newer := bytes.Clone(state)
	newer[0]++
	if err := CheckState(newer); !errors.Is(err, ErrNewerState) {
		t.Errorf("a state of a newer version: %v, want ErrNewerState", err)
	}
	for n := 1; n < len(state); n++ {
		whole := CheckState(state[:n]) == nil // cut between two sections
		if whole && set.Check(state[:n]) != nil {
			t.Errorf("the first %d bytes pass as a state, but their windows don't", n)
		}
		if err := CheckState(state[:n]); errors.Is(err, ErrNewerState) {
			t.Errorf("the first %d bytes are said to be of a newer version", n)
		}
	}
}

// FuzzCheckState: whatever passes the checks can be stepped and explained.
func FuzzCheckState(f *testing.F) {
	set := fiveLimits(f)
	p := set.NewStepper()
	var state []byte
	for i := range 4 {
		in := Input{Key: []byte("uid=42"), At: noon + event.Micros(i)*event.Minute, ID: fmt.Sprint(i), Hits: unitHits(set.Limits...)}
		in.Hits[0].Amount *= 70
		state, _ = p.Step(nil, state, in)
		f.Add(state)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if set.Check(data) != nil {
			return
		}
		set.Explain(data, []byte("uid=42"), noon+event.Minute, "")
		for _, in := range []Input{
			{Key: []byte("uid=42"), At: noon + 2*event.Minute, ID: "3", Hits: unitHits(set.Limits[3], set.Limits[0])},
			{Key: []byte("uid=42"), At: noon + 2*event.Minute, ID: "new", Hits: unitHits(set.Limits...)},
			{Key: []byte("uid=42"), At: noon + 3*event.Day},
		} {
			next, _ := p.Step(nil, data, in)
			if err := set.Check(next); err != nil {
				t.Fatalf("a step made a bad state of a good one: %v", err)
			}
		}
	})
}
