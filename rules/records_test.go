package rules

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
)

const severalShapes = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - {name: a, match: {api: x}, limit: 5, per: 1h, warn: [50%], candidate: {limit: 4}, then: {block: until-reset}}
    - name: b
      match: {api: x}
      public: b
      limits: [{name: burst, limit: 1, per: 1s}, {name: hourly, limit: 9, per: 1h, quota: true}]
      then: {block: 1m}
    - {name: c, key: [uid, attrs.campaign], match: {api: x}, limit: 1, per: 1h, then: {block: 1m}}
`

func TestRecordKeysOfAKey(t *testing.T) {
	set := compiled(t, severalShapes)
	for key, want := range map[string][]string{
		"uid=4%202":                {"uid=4%202|manual", "uid=4%202|a", "uid=4%202|a/candidate", "uid=4%202|a|warn", "uid=4%202|b/burst", "uid=4%202|b/hourly", "uid=4%202|b/hourly|left"},
		"attrs.campaign=s&uid=42":  {"attrs.campaign=s&uid=42|manual", "attrs.campaign=s&uid=42|c"},
		"ip=192.0.2.1":             {"ip=192.0.2.1|manual"},
		"what is no key, that is.": nil,
	} {
		var got []string
		for _, k := range set.RecordKeys([]byte(key)) {
			got = append(got, string(k))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (- want)\n%s", key, diff)
		}
	}
}

func TestNamesOfRulesAndLimits(t *testing.T) {
	set := compiled(t, severalShapes)
	for name, want := range map[string]bool{"a": true, "b": true, "b/burst": true, "manual": true, "burst": false, "b/": false, "": false, "B": false} {
		if got := set.Names(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

// An exemption from one of a rule's limits was none: it was looked for by the rule's name only.
func TestAnExemptionFromOneLimitOfARule(t *testing.T) {
	set := compiled(t, severalShapes)
	p := set.NewStepper()
	key := []byte("uid=42")
	state, _ := p.Command(nil, nil, key, Command{Kind: CommandExempt, Rule: "b/burst", At: noon, Until: noon + event.Hour})
	_, res := p.Step(nil, state, Input{Key: key, At: noon + 1, Hits: []Hit{{Limit: set.Limits[1], Amount: 20 * event.One}, {Limit: set.Limits[2], Amount: 20 * event.One}}})
	if len(res.Changes) != 1 || res.Changes[0].Rule != "b/hourly" {
		t.Errorf("%q", sentences(res.Changes))
	}
	given := ExemptionsOf(state)
	if !given.Spare(set.Limits[1], noon) || given.Spare(set.Limits[2], noon) || given.Spare(set.Limits[1], noon+event.Hour) {
		t.Errorf("of the state: %v", given)
	}
	if got := ExemptionsOf(nil); got != nil {
		t.Errorf("of no state: %v", got)
	}
}
