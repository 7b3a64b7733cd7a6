package rules

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
)

// Three rules match, however many there are.
func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			var rules strings.Builder
			rules.WriteString(ruleYAML("exact", "match: {api: order.create}"))
			rules.WriteString(ruleYAML("pattern", `match: {api: "ord*.create"}`))
			rules.WriteString(ruleYAML("tail", `match: {api: "order.*"}, key: ip`))
			for i := range n - 3 {
				api := [...]string{"api-%d.create", "api-%d.*", "api-%d*.create", "*.create-%d"}[i%4]
				rules.WriteString(ruleYAML(fmt.Sprint("other-", i), fmt.Sprintf("match: {api: %q}", fmt.Sprintf(api, i))))
			}
			benchmarkMatch(b, compileRules(b, rules.String()))
		})
	}
}

func BenchmarkMatchWhen(b *testing.B) {
	benchmarkMatch(b, compileRules(b, ruleYAML("a", "match: {api: order.create}, when: attrs.discounted == true")+
		ruleYAML("b", "match: {api: order.create}, when: attrs.n > 10")+ruleYAML("c", "match: {api: order.create}")))
}

// Three rules ask for ten thousand networks in a list.
func BenchmarkMatchNetworks(b *testing.B) {
	var list strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&list, "10.%d.%d.0/25\n", i>>8, i&255)
	}
	const rule = "match: {api: order.create}, when: 'not inNetwork(ip, \"far\", \"198.51.100.0/24\")'"
	src := header + "  networks: {far: far.txt}\n  rules:\n" + ruleYAML("a", rule) + ruleYAML("b", rule) + ruleYAML("c", rule)
	set, err := CompileWith("bench.yaml", []byte(src), func(string) ([]byte, error) { return []byte(list.String()), nil })
	if err != nil {
		b.Fatal(err)
	}
	benchmarkMatch(b, set)
}

func benchmarkMatch(b *testing.B, set *Set) {
	e := &event.Event{
		API: "order.create", UID: "user-4711", IP: netip.MustParseAddr("192.0.2.1"), Cost: event.One,
		Attrs: []event.Attr{
			{Name: "discounted", Value: event.Value{Kind: event.Bool, Text: "true"}},
			{Name: "n", Value: event.Value{Kind: event.Number, Text: "42"}},
		},
	}
	m := set.NewMatcher()
	hits := 0
	for _, w := range m.Match(e, 0) {
		hits += len(w.Hits)
	}
	if hits != 3 {
		b.Fatalf("%d hits", hits)
	}
	b.ReportAllocs()
	for b.Loop() {
		m.Match(e, 0)
	}
}

// Names that the Matcher has not seen: what the index itself costs.
func BenchmarkIndex(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			var rules []*Rule
			for i := range n {
				r := &Rule{Index: i}
				api := [...]string{"api-%d.create", "api-%d.*", "api-%d*.create", "*.create-%d"}[i%4]
				r.match.apis = []apiWeight{{fmt.Sprintf(api, i), 1}, {[]string{"order.create", "order.*", "ord*.create", "x"}[min(i, 3)], 1}}
				rules = append(rules, r)
			}
			ix := indexAPIs(rules)
			var found []apiEntry[*Rule]
			b.ReportAllocs()
			for b.Loop() {
				found = ix.find(found[:0], "order.create")
			}
			if len(found) != 3 {
				b.Fatalf("%d found", len(found))
			}
		})
	}
}
