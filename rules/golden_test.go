package rules

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/windows"
)

// Every kind of window, and what a rule can do with it: the names that its counters have in states, what
// it judges by, and a long story's states, verdicts and explanations are those that earlier programs gave.
func TestCountersAreNamedAndJudgedAsEver(t *testing.T) {
	src, err := os.ReadFile("testdata/kinds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	set := compiled(t, string(src))
	var b strings.Builder
	describeLimits(&b, set)
	h := sha256.New()
	r := rand.New(rand.NewPCG(1, 7))
	var state []byte
	now := noon
	// What is exact becomes panes, and back; then there are no refunds.
	greater := strings.NewReplacer("limit: 7}", "limit: 77}", "limit: 8}", "limit: 88}", "limit: 80,", "limit: 60,").Replace(string(src))
	for i, src := range []string{string(src), greater, strings.ReplaceAll(greater, "refunds: true", "refunds: false"), string(src)} {
		set := compiled(t, src)
		if err := set.Check(state); err != nil {
			t.Fatal(err)
		}
		state, now = goldenStory(t, h, set, r, state, now)
		fmt.Fprintf(&b, "story %d: %d bytes, %x\n", i+1, len(state), h.Sum(nil)[:16])
	}
	testrun.Golden(t, "testdata/kinds.txt", b.String())
}

// describeLimits says all that a limit's fields came to.
func describeLimits(b *strings.Builder, set *Set) {
	window := func(w *windows.Spec) {
		if w.Every > 0 {
			fmt.Fprintf(b, " every %d", w.Every)
		}
		if w.FirstDay > 0 {
			fmt.Fprintf(b, " from %d %d", w.FirstMonth, w.FirstDay)
		}
		fmt.Fprintf(b, " kind %d per %d offset %d unit %d zone %v week %d exact %t resolution %d lateness %d gap %d limit %d most %d distinct %t estimate %t refunds %t\n",
			uint8(w.Kind), w.Per, w.Offset, w.Unit, w.Zone, w.WeekStarts, w.Exact, w.Resolution, w.Lateness, w.Gap, w.Limit, w.Most, w.Distinct, w.Estimate, w.Refunds)
	}
	for _, l := range set.Limits {
		fmt.Fprintf(b, "%s: %x, judged %x, faces %08x\n ", l.Name, l.Hash[:], l.judged, l.displayHashes)
		window(&l.Window)
		fmt.Fprintf(b, "  limit %d debt %d candidate %d shadow %t per %d to %d grain %d plain %t quiet to %d panes %d\n",
			l.threshold(), l.Debt, l.Candidate, l.Shadow, l.PerMin, l.PerMax, l.Grain, l.plain, l.quietTo, l.panes)
		for _, f := range l.formers {
			fmt.Fprintf(b, "  was %x ", f.hash[:])
			window(&f.window)
		}
	}
}

// goldenStory goes on with a key's state through some thousand events, and writes all that follows to h.
func goldenStory(t *testing.T, h hash.Hash, set *Set, r *rand.Rand, state []byte, now event.Micros) ([]byte, event.Micros) {
	t.Helper()
	m, p := set.NewMatcher(), set.NewStepper()
	key := []byte("uid=42")
	say := func(v any) {
		if err := json.NewEncoder(h).Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1500 {
		at := now + event.Micros(r.Int64N(int64(5*event.Second)))
		switch r.IntN(40) {
		case 0:
			at += event.Micros(r.Int64N(int64(2 * event.Hour)))
		case 1, 2, 3:
			at -= event.Micros(r.Int64N(int64(2 * event.Minute)))
		}
		now = max(now, at)
		e := &event.Event{API: "x", UID: "42", ID: fmt.Sprint("e", i), Time: at, Cost: event.One * event.Decimal(1+r.IntN(2))}
		e.Attrs = []event.Attr{
			{Name: "bytes", Value: event.Value{Kind: event.Number, Text: fmt.Sprintf("%d.%d", r.IntN(9), r.IntN(1000))}},
			{Name: "device", Value: event.Value{Text: fmt.Sprint("d", r.IntN(40))}},
			{Name: "plan", Value: event.Value{Text: []string{"pro", "free"}[r.IntN(2)]}},
		}
		if r.IntN(9) == 0 {
			e.Cost, e.Refunds = -event.One, fmt.Sprint("e", max(0, i-1-r.IntN(20)))
		}
		for _, w := range m.Match(e, at) {
			next, res := p.Step(nil, state, Input{Key: key, Hits: w.Hits, At: at, ID: e.ID, Active: 1})
			state = next
			say(res.Changes)
			say([]any{res.Repeat, res.Unknown, res.Late, res.Moves, res.SpentAt})
		}
		say(state)
		if i%10 == 0 {
			say(p.Explain(state, key, now+event.Micros(r.Int64N(int64(event.Minute))), ""))
		}
	}
	return state, now
}
