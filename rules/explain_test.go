package rules

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

const explainedRules = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - name: search
      match: {api: search.*}
      limit: 3
      per: 1h
      window: tumbling
      then: {block: until-reset}
    - name: ads
      match: {api: ad.shown}
      limit: 2
      per: 5s
      then: {block: 1m, apis: [ad.select]}
    - name: per-campaign
      key: [uid, attrs.campaign]
      match: {api: ad.shown}
      limit: 2
      per: 5s
      then: {block: 1m}
`

func compiled(t testing.TB, src string) *Set {
	t.Helper()
	set, err := Compile("rules.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestExplainNamesEveryLimitOfTheKey(t *testing.T) {
	set := compiled(t, explainedRules)
	names := func(key, api string) (out []string) {
		for _, x := range set.Explain(nil, []byte(key), noon, api) {
			out = append(out, x.Rule)
		}
		return out
	}
	for _, tc := range []struct {
		key, api string
		want     []string
	}{
		{"uid=42", "", []string{"search", "ads"}},
		{"attrs.campaign=c1&uid=42", "", []string{"per-campaign"}},
		{"uid=42", "search.query", []string{"search"}},
		{"uid=42", "ad.shown", []string{"ads"}},  // it counts this one
		{"uid=42", "ad.select", []string{"ads"}}, // and blocks that one
		{"uid=42", "cart.show", nil},
		{"ip=192.0.2.1", "", nil},
		{"nonsense", "", nil},
	} {
		if diff := cmp.Diff(tc.want, names(tc.key, tc.api)); diff != "" {
			t.Errorf("key %s, api %q (- want):\n%s", tc.key, tc.api, diff)
		}
	}
}

func TestExplainFollowsTheClock(t *testing.T) {
	set := compiled(t, explainedRules)
	key := []byte("uid=42")
	ads := set.Limits[1]
	state, _ := set.NewStepper().Step(nil, nil, Input{
		Key: key, At: noon, Hits: []Hit{{Limit: ads, Amount: 3 * event.One}}, Cause: verdict.Cause{ID: "e1", Partition: 1, Offset: 7},
	})
	for _, tc := range []struct {
		after   event.Micros
		count   event.Decimal
		frees   event.Micros
		blocked bool
	}{
		{0, 3 * event.One, noon + 5*event.Second, true},
		{5*event.Second - 1, 3 * event.One, noon + 5*event.Second, true},
		{5 * event.Second, 0, event.NoTime, true},
		{event.Minute - 1, 0, event.NoTime, true},
		{event.Minute, 0, event.NoTime, false},
	} {
		x := set.Explain(state, key, noon+tc.after, "ad.shown")[0]
		if x.Count != tc.count || x.FreesAt != tc.frees || (x.Verdict != nil) != tc.blocked || x.Latest != noon {
			t.Errorf("%v after the event: %+v, want count %v, below the limit at %v, blocked %v", tc.after.Duration(), x, tc.count, tc.frees, tc.blocked)
		}
		if x.Verdict != nil && (x.Verdict.Since != noon || x.Verdict.Until != noon+event.Minute || x.Verdict.Cause.Offset != 7) {
			t.Errorf("%v after the event: verdict %+v", tc.after.Duration(), x.Verdict)
		}
	}
}

func ExampleSet_Explain() {
	set, err := Compile("rules.yaml", []byte(explainedRules))
	if err != nil {
		fmt.Println(err)
		return
	}
	key := []byte("uid=42")
	state, _ := set.NewStepper().Step(nil, nil, Input{
		Key:  key,
		At:   noon,
		Hits: []Hit{{Limit: set.Limits[0], Amount: 2 * event.One}},
	})
	out, err := json.MarshalIndent(set.Explain(state, key, noon+event.Minute, "search.query"), "", "  ")
	fmt.Println(string(out), err)
	// Output:
	// [
	//   {
	//     "rule": "search",
	//     "window": "tumbling",
	//     "count": 2,
	//     "limit": 3,
	//     "left": 1,
	//     "from": "2026-11-21T12:00:00Z",
	//     "until": "2026-11-21T13:00:00Z",
	//     "frees_at": null,
	//     "mode": "enforce",
	//     "latest": "2026-11-21T12:00:00Z",
	//     "counted": "2026-11-21T12:00:00Z",
	//     "verdict": null
	//   }
	// ] <nil>
}
