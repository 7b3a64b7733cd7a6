package rules

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
)

func TestWhatIsCounted(t *testing.T) {
	const count, sumCost, sumBytes = "", "count: {sum: cost}, ", "count: {sum: attrs.bytes}, "
	for _, test := range []struct {
		what, count, weight, cost string
		bytes                     event.Value
		want                      string // the amount, or why it is skipped
	}{
		{"one event", count, "1", "1", event.Value{}, "1"},
		{"weight and cost", count, "5", "3", event.Value{}, "15"},
		{"a whole product", count, "4", "0.25", event.Value{}, "1"},
		{"a fraction", count, "3", "0.25", event.Value{}, SkipFraction},
		{"no cost", count, "5", "0", event.Value{}, "0"},
		{"more than there is", count, "9000G", "2000000", event.Value{}, "9223372036854"},
		{"a cost", sumCost, "2", "0.25", event.Value{}, "0.5"},
		{"bytes", sumBytes, "2", "1.5", event.Value{Kind: event.Number, Text: "2048"}, "6144"},
		{"cut to millionths", sumBytes, "1", "0.5", event.Value{Kind: event.Number, Text: "0.000003"}, "0.000001"},
		{"cut only at the end", sumBytes, "1", "2", event.Value{Kind: event.Number, Text: "0.0000005"}, "0.000001"},
		{"a tiny number", sumBytes, "1", "2", event.Value{Kind: event.Number, Text: "1e-999999999"}, "0"},
		{"a huge number", sumBytes, "1", "0.000001", event.Value{Kind: event.Number, Text: "1e999999999"}, "9223372036854.775807"},
		{"a huge number of nothing", sumBytes, "1", "0", event.Value{Kind: event.Number, Text: "1e999999999"}, "0"},
		{"too large, but for its cost", sumBytes, "1", "0.000001", event.Value{Kind: event.Number, Text: "5e18"}, "5000000000000"},
		{"an exponent beyond all", sumBytes, "1", "1", event.Value{Kind: event.Number, Text: "1e99999999999999999999"}, "9223372036854.775807"},
		{"negative", sumBytes, "1", "1", event.Value{Kind: event.Number, Text: "-1"}, SkipNegative},
		{"very negative", sumBytes, "1", "1", event.Value{Kind: event.Number, Text: "-1e300"}, SkipNegative},
		{"minus zero", sumBytes, "1", "1", event.Value{Kind: event.Number, Text: "-0"}, "0"},
		{"a text", sumBytes, "1", "1", event.Value{Kind: event.String, Text: "2048"}, SkipNumber},
		{"a boolean", sumBytes, "1", "1", event.Value{Kind: event.Bool, Text: "true"}, SkipNumber},
		{"no number", sumBytes, "1", "1", event.Value{Kind: event.Number, Text: "1/3"}, SkipNumber},
		{"absent", sumBytes, "1", "1", event.Value{}, SkipAbsent},
	} {
		t.Run(test.what, func(t *testing.T) {
			set := compileRules(t, ruleYAML("r", test.count+"match: {api: {x: "+test.weight+"}}"))
			m := set.NewMatcher()
			e := &event.Event{API: "x", UID: "u", Cost: decimal(t, test.cost)}
			if test.bytes.Text != "" {
				e.Attrs = []event.Attr{{Name: "bytes", Value: test.bytes}}
			}
			var got string
			if works := m.Match(e, 0); len(works) > 0 {
				got = works[0].Hits[0].Amount.String()
			}
			for _, s := range m.Skipped {
				got += s.Reason
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// A sum's amount is the exact product, cut to millionths, and no more than MaxDecimal.
func TestSumsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`(0|[1-9][0-9]{0,20})(\.[0-9]{1,12})?(e-?[0-9]{1,2})?`).Draw(t, "number")
		weight := rapid.Int64Range(1, 9_000_000_000_000).Draw(t, "weight")
		cost := event.Decimal(rapid.Int64Min(0).Draw(t, "cost"))

		exact, _ := new(big.Rat).SetString(text)
		exact.Mul(exact, new(big.Rat).SetInt64(weight))
		exact.Mul(exact, new(big.Rat).SetInt64(int64(cost)))
		want := event.MaxDecimal
		if q := new(big.Int).Quo(exact.Num(), exact.Denom()); q.IsInt64() {
			want = event.Decimal(q.Int64())
		}
		got, reason := sumAmount(text, weight, cost)
		if got != want || reason != "" {
			t.Fatalf("%s × %d × %s: got %s %s, want %s", text, weight, cost, got, reason, want)
		}
	})
}

// Whether weight × cost is whole is told without anything saturating.
func TestCountsAreWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weight := rapid.Int64Range(1, 9_000_000_000_000).Draw(t, "weight")
		cost := event.Decimal(rapid.Int64Min(0).Draw(t, "cost"))
		product := new(big.Int).Mul(big.NewInt(weight), big.NewInt(int64(cost)))
		whole := new(big.Int).Mod(product, big.NewInt(int64(event.One))).Sign() == 0
		got, reason := countAmount(cost, weight)
		if (reason == "") != whole || reason == "" && !got.Whole() {
			t.Fatalf("%d × %s: %s %s", weight, cost, got, reason)
		}
		if whole && product.Cmp(big.NewInt(int64(maxWhole))) <= 0 && product.Int64() != int64(got) {
			t.Fatalf("%d × %s: %s", weight, cost, got)
		}
	})
}
