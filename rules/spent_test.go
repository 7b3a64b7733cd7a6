package rules

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
)

// A key's state matters until the last of what is in it is over, to the microsecond. A tumbling
// window matters for another of its lengths, in which late events find it.
func TestAStateIsSpentWhenTheLastOfItIsOver(t *testing.T) {
	const minute, hour, day = event.Minute, event.Hour, event.Day
	for _, tt := range []struct {
		rule   string
		amount event.Decimal
		want   event.Micros // since the event
	}{
		{"limit: 5, per: 1h, window: tumbling, then: {block: 5m}", 1, 2 * hour},
		{"limit: 5, per: 1h, window: tumbling, then: {block: 4h}", 6, 4 * hour},
		{"limit: 5, per: 1h, window: tumbling, then: {block: until-reset}", 6, 2 * hour},
		{"limit: 5, per: 1h, window: tumbling, then: {escalate: [1m, 5m], forget: 7d}", 5, 2 * hour},
		{"limit: 5, per: 1h, window: tumbling, then: {escalate: [1m, 5m], forget: 7d}", 6, 7*day + minute},
		{"limit: 50, candidate: {limit: 5}, per: 1h, window: tumbling, then: {block: 3h}", 6, 3 * hour},
		{"limit: 5, per: 1h, window: bucket, then: {block: 5m}", 5, hour},
	} {
		set := compiled(t, header+"  recent_ids: {count: 0}\n  rules:\n    - {name: a, match: {api: x}, "+tt.rule+"}\n")
		p, key := set.NewStepper(), []byte("uid=42")
		in := Input{Key: key, At: noon, Hits: []Hit{{Limit: set.Limits[0], Amount: tt.amount * event.One}}}
		state, res := p.Step(nil, nil, in)
		if res.SpentAt != noon+tt.want {
			t.Errorf("%s: %d: spent after %v, want %v", tt.rule, tt.amount, (res.SpentAt - noon).Duration(), tt.want.Duration())
		}
		// What reads all of a state says the same.
		if _, res := p.Rejudge(nil, state, key, noon); res.SpentAt != noon+tt.want {
			t.Errorf("%s: %d: by a pass spent after %v, want %v", tt.rule, tt.amount, (res.SpentAt - noon).Duration(), tt.want.Duration())
		}
		if got := p.spent(p.read(state)); got != noon+tt.want {
			t.Errorf("%s: %d: as it is spent after %v, want %v", tt.rule, tt.amount, (got - noon).Duration(), tt.want.Duration())
		}
	}
}

// A pass keeps what commands gave to a key for as long as it holds.
func TestAPassKeepsAKeysOwnUntilItIsOver(t *testing.T) {
	set := compiled(t, beforeChange)
	p, key := set.NewStepper(), []byte("uid=42")
	for _, kind := range []CommandKind{CommandBlock, CommandExempt} {
		state, _ := p.Step(nil, nil, Input{Key: key, At: noon, Hits: unitHits(set.Limits[0])})
		state, _ = p.Command(nil, state, key, Command{Kind: kind, At: noon, Until: noon + 50*event.Hour})
		if _, res := p.Rejudge(nil, state, key, noon+event.Minute); res.SpentAt != noon+50*event.Hour {
			t.Errorf("command %v: spent after %v, want 50h", kind, (res.SpentAt - noon).Duration())
		}
	}
}

// An unlimited tier has nothing that could be freed, and the least limit has.
func TestOnlyALimitFrees(t *testing.T) {
	explain := func(rule, cost string) Explanation {
		set := compiled(t, header+"  rules:\n    - {name: a, match: {api: x}, count: {sum: cost}, "+rule+", per: 1h, window: tumbling, then: {block: until-reset}}\n")
		c, err := event.ParseDecimal(cost)
		if err != nil {
			t.Fatal(err)
		}
		e := &event.Event{API: "x", UID: "42", Time: noon, Cost: c}
		work := set.NewMatcher().Match(e, noon)[0]
		state, _ := set.NewStepper().Step(nil, nil, Input{Key: work.Key, At: noon, Hits: work.Hits})
		return set.Explain(state, work.Key, noon, "")[0]
	}
	if x := explain("limit: 5, tiers: [{when: cost > 1, unlimited: true}]", "9"); x.Limit != 0 || x.FreesAt != event.NoTime || x.Frees != "" {
		t.Errorf("unlimited: frees at %v, %q", x.FreesAt, x.Frees)
	}
	if x := explain("limit: 5, tiers: [{when: cost > 1, limit: 0}]", "9"); x.Limit != 0 || !x.Closed || x.FreesAt != noon+event.Hour || x.Frees == "" {
		t.Errorf("closed: frees at %v, %q", x.FreesAt, x.Frees)
	}
	if x := explain("limit: 0.000001", "0.000001"); x.Limit != 1 || x.FreesAt != noon+event.Hour || x.Frees == "" {
		t.Errorf("a limit of %v: frees at %v, %q", x.Limit, x.FreesAt, x.Frees)
	}
}

// The schema requires of each place what the table of fields does, and of others nothing.
func TestTheSchemaRequiresWhatTheTableDoes(t *testing.T) {
	type place struct {
		Required []string `json:"required"`
	}
	var schema struct {
		place
		Defs map[string]json.RawMessage `json:"$defs"`
	}
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{"": fmt.Sprint(schema.Required)}
	want := map[string]string{
		"": "[apiVersion kind metadata spec]", "metadata": "[name]", "rule": "[name match]", "limit": "[name]", "spec": "[rules]",
		"match": "[api]", "candidate": "[limit]", "exemption": "[reason]", "tier": "[when]", "told": "[from else most]", "grants": "[most]", "forget": "[step]", "reset_on": "[api]", "warm_up": "[time from]",
	}
	for name, def := range schema.Defs {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(def, &members); err != nil {
			t.Fatal(err)
		}
		if required, is := members["required"]; is {
			var names []string
			if err := json.Unmarshal(required, &names); err != nil {
				t.Fatal(err)
			}
			got[name] = fmt.Sprint(names)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(- want)\n%s", diff)
	}
}
