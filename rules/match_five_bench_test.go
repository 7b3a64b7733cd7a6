package rules

import (
	"testing"

	"github.com/tallygate/tallygate/event"
)

// BenchmarkMatchFive matches five rules of one key, one of which sums an attribute.
func BenchmarkMatchFive(b *testing.B) {
	set := compileRules(b, ruleYAML("a", "match: {api: [search.query, search.suggest]}")+
		ruleYAML("b", `match: {api: "search.*"}`)+ruleYAML("c", `match: {api: "search.*"}`)+ruleYAML("d", `match: {api: "search.*"}`)+
		ruleYAML("e", `match: {api: "search.*"}, count: {sum: attrs.bytes}`))
	e := &event.Event{
		API: "search.query", UID: "user-0004711", Outcome: "success", Cost: event.One,
		Attrs: []event.Attr{
			{Name: "device", Value: event.Value{Kind: event.String, Text: "d471"}},
			{Name: "bytes", Value: event.Value{Kind: event.Number, Text: "2048"}},
			{Name: "discounted", Value: event.Value{Kind: event.Bool, Text: "true"}},
		},
	}
	m := set.NewMatcher()
	if works := m.Match(e, 0); len(works) != 1 || len(works[0].Hits) != 5 {
		b.Fatalf("%+v", works)
	}
	b.ReportAllocs()
	for b.Loop() {
		m.Match(e, 0)
	}
}
