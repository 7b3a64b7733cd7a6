package windows_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/windows"
)

// specs has one Spec of each kind.
func specs() map[string]windows.Spec {
	all := map[string]windows.Spec{
		"tumbling": perMinute(),
		"calendar": {Kind: windows.Calendar, Unit: windows.Day, Zone: mustLoad("Asia/Shanghai"), Lateness: event.Hour},
		"exact":    exactly(event.Minute),
		"panes":    inPanes(event.Minute, 0),
		"session":  perSession(event.Minute, event.Hour),
		"bucket":   bucketOf(7*event.One, event.Minute),
		"hopping":  hoppingBy(event.Minute, 10*event.Second),
		"first":    fromFirst(event.Minute, event.Hour),
	}
	for name, spec := range all {
		if err := spec.Validate(); err != nil {
			panic(err)
		}
		all[name] = spec
	}
	return all
}

func TestValidateReturnsAllThatIsWrong(t *testing.T) {
	for name, tt := range map[string]struct {
		spec windows.Spec
		want []string
	}{
		"kind":      {windows.Spec{}, []string{"unknown kind 0"}},
		"tumbling":  {windows.Spec{Kind: windows.Tumbling, Lateness: -1, Offset: windows.MaxTime + 1}, []string{"lateness", "per", "offset"}},
		"calendar":  {windows.Spec{Kind: windows.Calendar, WeekStarts: 7}, []string{"unknown unit 0", "day 7"}},
		"elsewhere": {windows.Spec{Kind: windows.Calendar, Unit: windows.Hour, FirstDay: 32, Offset: event.Hour}, []string{"on day 32", "not of hours"}},
		"sliding":   {windows.Spec{Kind: windows.Sliding, Per: -1}, []string{"per is -1"}},
		"panes":     {windows.Spec{Kind: windows.Sliding, Per: event.Hour, Resolution: event.Second - 1}, []string{"more than 3600 panes"}},
		"session":   {windows.Spec{Kind: windows.Session, Lateness: -1}, []string{"lateness", "gap"}},
		"bucket":    {windows.Spec{Kind: windows.Bucket, Per: 1}, []string{"limit"}},
		"hopping":   {windows.Spec{Kind: windows.Hopping, Lateness: -1, Offset: windows.MaxTime + 1}, []string{"lateness", "per", "every", "offset"}},
		"first":     {windows.Spec{Kind: windows.FromFirst, Lateness: -1}, []string{"lateness", "per"}},
		"uneven":    {windows.Spec{Kind: windows.Hopping, Per: event.Hour, Every: 7 * event.Minute}, []string{"not a multiple"}},
		"hops":      {windows.Spec{Kind: windows.Hopping, Per: event.Hour + 2*event.Second, Every: 2 * event.Second}, []string{"more than 1800 windows"}},
		"distinct":  {windows.Spec{Kind: windows.Bucket, Per: 1, Limit: 1, Distinct: true}, []string{"bucket does not count"}},
		"estimate":  {windows.Spec{Kind: windows.Sliding, Per: 1, Distinct: true, Estimate: true}, []string{"not in sliding"}},
		"refunds":   {windows.Spec{Kind: windows.Session, Gap: 1, Refunds: true}, []string{"taken back"}},
		"coarse":    {windows.Spec{Kind: windows.Sliding, Per: event.Hour, Resolution: event.Hour + 1}, []string{"not between"}},
	} {
		err := tt.spec.Validate()
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not name %q", name, err, want)
			}
		}
		if got := strings.Count(err.Error(), "\n") + 1; got != len(tt.want) {
			t.Errorf("%s: %d errors, want %d:\n%v", name, got, len(tt.want), err)
		}
	}
}

func TestValidateTakes3600Panes(t *testing.T) {
	spec := inPanes(event.Hour, event.Second)
	if err := spec.Validate(); err != nil {
		t.Error(err)
	}
}

// There are a hundred million keys, and most have few events.
func TestAKeyWithFewEventsTakesFewBytes(t *testing.T) {
	want := map[string][2]int{ // of one event, and of four, one a second
		"tumbling": {10, 10},
		"calendar": {16, 16},
		"exact":    {10, 19},
		"panes":    {13, 19},
		"session":  {16, 19},
		"bucket":   {16, 16},
		"hopping":  {14, 14},
		"first":    {16, 19},
	}
	for name, spec := range specs() {
		c := newCounter(t, spec)
		start := at("2026-11-21T10:00:00Z")
		c.add(start, 1)
		one := len(c.state)
		for i := range event.Micros(3) {
			c.add(start+(i+1)*event.Second, 1)
		}
		if got := [2]int{one, len(c.state)}; got != want[name] {
			t.Errorf("%s: one event takes %d bytes, four take %d, want %v (the map in this test)", name, got[0], got[1], want[name])
		}
	}
}

func TestCheckRefusesWhatIsNotAState(t *testing.T) {
	for name, spec := range specs() {
		c := newCounter(t, spec)
		c.add(at("2026-11-21T10:00:00Z"), 1)
		c.add(at("2026-11-21T10:00:07Z"), 7)
		for i := 1; i < len(c.state); i++ {
			if i == 9 && (spec.Kind == windows.Sliding || spec.Kind == windows.Bucket || spec.Kind == windows.Hopping) {
				continue // a state without amounts
			}
			if i == 11 && spec.Exact {
				continue // a state with the newest time only
			}
			if err := spec.Check(c.state[:i]); err == nil {
				t.Errorf("%s: the first %d bytes of % x are a state", name, i, c.state)
			}
		}
		for _, more := range []string{"\x00", "\x80", "\x80\x00", "\x01\x01\x01"} {
			if err := spec.Check([]byte(string(c.state) + more)); err == nil {
				t.Errorf("%s: % x and then % x is a state", name, c.state, more)
			}
		}
		for other, spec := range specs() {
			if err := spec.Check(c.state); (err == nil) != (name == other) {
				t.Errorf("%s: a state of %s: %v", other, name, err)
			}
		}
	}
}

// A counter of a newer version of its own kind is told from one that is broken.
func TestCheckKnowsVersions(t *testing.T) {
	spec := perMinute() // 0x11 is what it reads
	for first, want := range map[byte]bool{0x21: true, 0xf1: true, 0x12: false, 0x22: false, 0x01: false} {
		if err := spec.Check([]byte{first, 0, 0}); err == nil || errors.Is(err, windows.ErrNewer) != want {
			t.Errorf("format %#02x: %v", first, err)
		}
	}
}

// froms make scripts for all layouts of a state. Their order is the corpus's.
func froms() []func([]byte) script {
	return []func([]byte) script{
		tumblingFrom, calendarFrom, exactFrom, panesFrom,
		scriptOf(sessionFrom), scriptOf(bucketFrom), distinctFrom(tumblingFrom), distinctFrom(calendarFrom),
		distinctFrom(exactFrom), distinctFrom(panesFrom), distinctFrom(scriptOf(sessionFrom)),
		hoppingFrom, distinctFrom(hoppingFrom), scriptOf(firstFrom), distinctFrom(scriptOf(firstFrom)),
	}
}

// A kind that is in none of these lists would pass all tests that go through all kinds.
func TestTheListsOfTestsHaveEachKind(t *testing.T) {
	lists := map[string]map[windows.Kind]bool{"specs, in specs_test.go": {}, "goldenSpecs, in golden_test.go": {}, "froms, in specs_test.go": {}}
	for _, s := range specs() {
		lists["specs, in specs_test.go"][s.Kind] = true
	}
	_, golden := goldenSpecs()
	for _, s := range golden {
		lists["goldenSpecs, in golden_test.go"][s.Kind] = true
	}
	for _, from := range froms() {
		lists["froms, in specs_test.go"][from(make([]byte, head)).spec.Kind] = true
	}
	for kind := windows.Tumbling; !strings.HasPrefix(kind.String(), "kind "); kind++ {
		for list, has := range lists {
			if !has[kind] {
				t.Errorf("add %v windows to %s", kind, list)
			}
		}
	}
}

func FuzzCheck(f *testing.F) {
	froms := froms()
	for kind, from := range froms {
		for scale := range byte(4) {
			bytes := []byte{byte(kind), scale, 59, 5, 200, 2, 0}
			script := from(bytes[1:])
			c := newCounter(f, script.spec)
			for i := range event.Micros(12) {
				at, n := script.start+i*max(c.spec.Per, c.spec.Gap)/8, event.Decimal(i)*event.One/2
				c.state = addEither(&c.spec, c.state, at, n)
			}
			f.Add(append(bytes, c.state...), int64(c.spec.Latest(c.state)), int64(event.One))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, when, n int64) {
		if len(data) < 1+head {
			return
		}
		spec := froms[int(data[0])%len(froms)](data[1 : 1+head]).spec
		if err := spec.Validate(); err != nil {
			t.Fatal(err)
		}
		state := slices.Clone(data[1+head:]) // it is added to in place, and data is the fuzzer's
		if spec.Check(state) != nil {
			return
		}
		// A state that Check lets pass stays one, whatever is asked of it and added to it.
		for range 3 {
			if len(state) > spec.MaxBytes() {
				t.Fatalf("%+v: a state of %d bytes, MaxBytes is %d", spec, len(state), spec.MaxBytes())
			}
			latest := spec.Latest(state)
			if below := spec.Below(state, event.Decimal(n)); below < latest || spec.Spent(state) < latest {
				t.Fatalf("%+v: it ends before the latest time: % x", spec, state)
			}
			if spec.Count(state) < 0 || spec.CountAt(state, event.Micros(when)) < 0 {
				t.Fatalf("%+v: a count below zero: % x", spec, state)
			}
			if from, to := spec.Bounds(state, event.Micros(when)); from >= to && spec.Kind != windows.Bucket {
				t.Fatalf("%+v: window from %d to %d", spec, from, to)
			}
			state = addEither(&spec, state, event.Micros(when), event.Decimal(n))
			if err := spec.Check(state); err != nil {
				t.Fatalf("%+v: after Add: %v: % x", spec, err, state)
			}
			when += int64(max(spec.Per, spec.Gap))/3 + 1
		}
	})
}

func scriptOf(from func([]byte) (windows.Spec, event.Micros, []event.Micros)) func([]byte) script {
	return func(b []byte) script {
		spec, start, steps := from(b)
		return script{spec: spec, start: start, steps: steps}
	}
}

func distinctFrom(from func([]byte) script) func([]byte) script {
	return func(b []byte) script {
		sc := from(b)
		sc.spec.Distinct = true
		sc.spec.Estimate = sc.spec.Estimates() && b[5]&1 == 1
		return sc
	}
}

// addEither adds an amount or, to a counter of distinct values, both kinds of events.
func addEither(spec *windows.Spec, state []byte, at event.Micros, n event.Decimal) []byte {
	if spec.Distinct {
		state, _ = spec.AddValue(state, at, uint64(n))
		at++
	}
	state, _ = spec.Add(state, at, n)
	return state
}
