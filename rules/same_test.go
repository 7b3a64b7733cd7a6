package rules

import (
	"slices"
	"strings"
	"testing"
)

// What the same limit is: of each change it is told whether the limit goes on, with its counts and its permits.
// That holds in both directions, forth and back.
func TestWhatTheSameLimitIs(t *testing.T) {
	const were = "    - {name: a, match: {api: x}, limit: 64, per: 1m, strict: {hold: 10s}}\n"
	limit := func(of, to string) *Limit {
		text := strings.Replace(were, of, to, 1)
		if of != "" && text == were {
			t.Fatalf("the rule has no %q", of)
		}
		src := []byte("apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: same}\nspec:\n  rules:\n" + text)
		set, err := CompileWith("rules.yaml", src, func(string) ([]byte, error) { return []byte("uid,limit\nu1,500\n"), nil })
		if err != nil {
			t.Fatal(err)
		}
		return set.All()[0].Limits[0]
	}
	same := func(a, b *Limit) bool { return slices.Contains(a.Names(), b.Hash) }
	old := limit("", "")
	for _, c := range []struct {
		name, of, to string
		same         bool
	}{
		{"nothing", "", "", true},
		{"a lower number", "limit: 64", "limit: 3", true},
		{"a number across 64", "limit: 64", "limit: 65", true},
		{"a tier above 64", "limit: 64", "limit: 64, tiers: [{when: 'attrs.plan == \"pro\"', limit: 100}]", true},
		{"an override above 64", "limit: 64", "limit: 64, overrides: o.csv", true},
		{"refunds", "per: 1m", "per: 1m, refunds: true", true},
		{"refunds and a number across 64", "limit: 64, per: 1m", "limit: 65, per: 1m, refunds: true", true},
		{"a resolution that was never used", "per: 1m", "per: 1m, resolution: 5s", true},
		{"hold", "hold: 10s", "hold: 20s", true},
		{"lost", "hold: 10s", "hold: 10s, lost: return", true},
		{"ahead", "hold: 10s", "hold: 10s, ahead: 1s", true},
		{"not strict", "strict: {hold: 10s}", "then: {block: 1h}", true},
		{"a verdict besides", "strict: {hold: 10s}", "strict: true, then: {block: 1h}", true},
		{"what matches", "api: x", "api: y", true},
		{"another length", "per: 1m", "per: 2m", false},
		{"another window", "per: 1m", "per: 1m, window: tumbling", false},
		{"a bucket", "per: 1m", "per: 1m, window: bucket", false},
		{"another key", "name: a", "name: a, key: ip", false},
		{"another count", "per: 1m", "per: 1m, count: {sum: cost}", false},
		{"another name", "name: a", "name: b", false},
	} {
		now := limit(c.of, c.to)
		if forth, back := same(now, old), same(old, now); forth != c.same || back != c.same {
			t.Errorf("%s: the same %v, and back %v, want %v", c.name, forth, back, c.same)
		}
		if got := now.Rule.Strict != nil && now.Strict; got == (c.name == "not strict") {
			t.Errorf("%s: strict %v", c.name, got)
		}
	}
}
