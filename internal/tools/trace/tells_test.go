package trace

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
)

// With --live nothing is counted: a denial would tell, or would not.
func TestWhatADenialWouldTellTheGroup(t *testing.T) {
	set, err := rules.Compile("rules.yaml", []byte(`
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - {name: calls, match: {api: x}, limit: 2, per: day, window: calendar, tiers: [{when: 'attrs.plan == "pro"', limit: 8}], then: {block: until-reset}}
`))
	if err != nil {
		t.Fatal(err)
	}
	at, _ := event.ParseMicros("2026-11-21T10:00:00Z")
	denial := &event.Event{UID: "42", API: "x", Outcome: event.OutcomeLimited, Cost: event.One, Time: at, Attrs: []event.Attr{{Name: "plan", Value: event.StringValue("pro")}}}
	for _, tc := range []struct {
		counted event.Micros
		count   event.Decimal
		want    string
	}{
		{at - event.Minute, 2 * event.One, "would tell the limit of uid=42, and count nothing: 2 of 8 (tier 1)"},
		{at + event.Minute, 2 * event.One, "would tell nothing of uid=42, which has 2 of 2: a later event has told its limit"},
		{at - event.Minute, 0, "would tell nothing of uid=42, which has 0 of 2: nothing of it counts"},
		{event.NoTime, 0, "would tell nothing of uid=42, which has 0 of 2: nothing of it counts"},
	} {
		_, all := set.NewTracer().Why(denial, at)
		out := traced{Event: []byte("{}"), Live: true, Rules: []ruleTrace{of(&all[0])}}
		(&asked{}).fill(&target{&all[0], &out.Rules[0]}, 0, &rules.Explanation{Rule: "calls", Count: tc.count, Limit: 2 * event.One, Counted: tc.counted, FreesAt: event.NoTime}, at)
		var text bytes.Buffer
		w := writer{out: bufio.NewWriter(&text), flush: true}
		if err := w.write(&out); err != nil || strings.TrimSpace(strings.TrimPrefix(text.String(), "{}\n")) != "calls  "+tc.want {
			t.Errorf("it counted %v at %v: %s%v, want %s", tc.count, tc.counted, &text, err, tc.want)
		}
	}
}
