package when

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
)

// Whatever two values are compared: a comparison that is refused holds for no event.
func TestRefusedComparisonsNeverHold(t *testing.T) {
	values := []string{
		"uid", "ip", "id", "api", "outcome", "cost", "attrs.a", "attrs.n", "attrs.ok", "attrs.none", "time", "time.Weekday()", "time.Hour()", "nil",
		"1", `"u1"`, "true", `"192.0.2.1"`, `(uid ?? "x")`, `(attrs.n ?? 0)`, `[1, 2.5]`, `["u1", "x"]`, `string(cost)`, "2.5",
	}
	events := []*event.Event{
		{API: "x", Cost: event.One},
		{API: "x", UID: "u1", ID: "u1", IP: netip.MustParseAddr("192.0.2.1"), Outcome: "u1", Cost: 5 * event.One / 2, Attrs: []event.Attr{
			{Name: "a", Value: event.Value{Text: "u1"}}, {Name: "n", Value: event.Value{Kind: event.Number, Text: "1"}},
			{Name: "ok", Value: event.Value{Kind: event.Bool, Text: "true"}}}},
		{API: "u1", UID: "192.0.2.1", Cost: event.One, Attrs: []event.Attr{
			{Name: "a", Value: event.Value{Kind: event.Number, Text: "2.5"}}, {Name: "n", Value: event.Value{Text: "x"}}}},
	}
	rapid.Check(t, func(t *rapid.T) {
		left, right := rapid.SampledFrom(values).Draw(t, "left"), rapid.SampledFrom(values).Draw(t, "right")
		predicate := left + " " + rapid.SampledFrom([]string{"==", "<", "in", ">="}).Draw(t, "operator") + " " + right
		p, mistakes := Compile(predicate, zones{})
		if p == nil || !slices.ContainsFunc(mistakes, func(m Mistake) bool {
			return m.Severity == Never && !strings.Contains(m.Message, "not true or false")
		}) {
			return // it is no mistake, or expr refuses it itself
		}
		for _, e := range events {
			ev := NewEvaluator()
			ev.Know(p)
			if holds, _ := ev.Holds(p, e, event.FromTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))); holds {
				t.Fatalf("%s is refused, and holds for %+v", predicate, e)
			}
		}
	})
}

type zones struct{ utc }

func (zones) Load(name string) *time.Location { return time.UTC }
