package rules

import (
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
)

func draft(t *testing.T, list string) (*Draft, error) {
	t.Helper()
	const head = "apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: shop}\nspec:\n  rules:\n"
	return CompileDraft("draft.yaml", []byte(head+list), func(string) ([]byte, error) { return nil, errNoFiles }, nil)
}

// In a draft limits have no number; in any other file that is a mistake: see testdata/bad/limit-suggest.yaml.
func TestDraft(t *testing.T) {
	d, err := draft(t, `
    - {name: other, match: {api: a}, limit: 5, per: 1s, then: {block: 1m}}
    - name: both
      match: {api: a}
      limits: [{name: sum, limit: suggest, per: 1m, window: tumbling}, {name: any, limit: suggest, per: 1m}]
      then: {block: 5m, reset: true}
    - {name: rate, match: {api: a}, limit: 5, per: 1s, burst: suggest, window: bucket, then: {block: 1m}}
    - {name: value, match: {api: a}, count: {distinct: ip}, limit: suggest, per: 1m, every: 10s, window: hopping, then: {block: 1m}}
`)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range d.Sought {
		names = append(names, s.Limit)
		if exact := s.Limit == "both/any"; s.Exact != exact || s.Burst != (s.Limit == "rate") {
			t.Errorf("%+v", s)
		}
	}
	if got := strings.Join(names, " "); got != "both/sum both/any rate value" || len(d.Set.Limits) != 4 || len(d.Exact.Limits) != 2 {
		t.Errorf("%s, %d limits, %d exact", got, len(d.Set.Limits), len(d.Exact.Limits))
	}
	if s := d.Sought[1]; s.Line != 10 || s.Rule != 8 {
		t.Errorf("%+v", s)
	}
}

func TestDraftMistakes(t *testing.T) {
	for _, c := range []struct{ list, want string }{
		{`    - {name: a, match: {api: a}, limit: 5, per: 1m, then: {block: 5m}}`, "no limit is to be suggested"},
		{`    - {name: a, match: {api: a}, limit: suggest, per: 1m, window: bucket, then: {block: 5m}}`, "burst: suggest"},
		{`    - {name: a, match: {api: a}, limit: suggest, per: 1m, scope: instance}`, "past events don't tell"},
		{`    - {name: a, match: {api: a}, window: in-flight, limit: suggest, strict: true}`, "past events don't tell"},
		{`    - {name: a, match: {api: a}, limit: {from: attrs.q, else: suggest, most: 5}, per: 1m, then: {block: 5m}}`, "else: `suggest` is no number yet"},
		{`    - {name: a, match: {api: a}, limit: 5, candidate: {limit: suggest}, per: 1m, then: {block: 5m}}`, "limit: `suggest` is no number yet"},
		{`    - {name: a, match: {api: a}, then: {block: 5m}, limits: [{name: a, limit: &x suggest, per: 1m}, {name: b, limit: *x, per: 1h}]}`,
			"two limits share this `suggest`"},
		{`    - {name: a, match: {api: a}, limit: suggest, per: 1m, then: {block: 5m}, burst: 5}`, "a sliding window has no `burst`"},
	} {
		if _, err := draft(t, c.list+"\n"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.list, err, c.want)
		}
	}
}

// A sought limit is counted and not judged: no verdict, no reset, no notice, whatever is counted.
func TestSoughtLimitsAreNotJudged(t *testing.T) {
	d, err := draft(t, `    - {name: a, match: {api: a}, limit: suggest, per: 1m, warn: 50%, then: {block: 5m, reset: true}}
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []*Set{d.Set, d.Exact} {
		p, m := set.NewStepper(), set.NewMatcher()
		var state []byte
		for i := range event.Decimal(200) {
			e := event.Event{UID: "u", API: "a", Cost: event.One}
			work := m.Match(&e, 0)
			next, res := p.Step(nil, state, Input{Key: work[0].Key, Hits: work[0].Hits, At: event.Micros(i)})
			if c := p.Counted; len(res.Changes) > 0 || len(c) != 1 || c[0].Count != (i+1)*event.One || c[0].Amount != event.One {
				t.Fatalf("%d: %+v, %+v", i, res.Changes, c)
			}
			state = next
		}
	}
}
