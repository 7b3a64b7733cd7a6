package rules

import (
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
)

const aboveRules = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  exempt: [{uid: vip, reason: a test}]
  rules:
    - `

// An event counts above a limit if the limit, enforced before it, would have kept it out; with it
// is how long before it the verdict in force began.
func TestAbove(t *testing.T) {
	second, day := event.Second, event.Day
	for _, tt := range []struct {
		about, rule string
		at          []event.Micros // of events of one key: behind noon
		each        func(i int, e *event.Event)
		want        string // by event
	}{
		{about: "a quota is issued at its limit, and the events behind that are above",
			rule: `{name: r, match: {api: x}, limit: 2, per: 1m, window: tumbling, then: {block: until-reset}}`,
			at:   []event.Micros{0, second, 3 * second, 4 * second, 60 * second}, want: "-; -; 2s; 3s; -"},
		{about: "the event that triggers a penalty is above, by nothing",
			rule: `{name: r, match: {api: x}, limit: 2, per: 1m, then: {block: 5s}}`,
			at:   []event.Micros{0, second, 3 * second, 4 * second, 9 * second}, want: "-; -; 0s; 1s; 0s"},
		{about: "a penalty with reset counts anew",
			rule: `{name: r, match: {api: x}, limit: 2, per: 1m, then: {block: 5s, reset: true}}`,
			at:   []event.Micros{0, second, 3 * second, 4 * second}, want: "-; -; 0s; -"},
		{about: "an amount counts once, however far above it is",
			rule: `{name: r, match: {api: x}, count: {sum: cost}, limit: 5, per: 1m, window: tumbling, then: {block: until-reset}}`,
			at:   []event.Micros{0, second, second}, each: func(_ int, e *event.Event) { e.Cost = 4 * event.One }, want: "-; 0s; 0s"},
		{about: "an event without cost is above nothing",
			rule: `{name: r, match: {api: x}, limit: 1, per: 1m, then: {block: 1h}}`,
			at:   []event.Micros{0, 1, 2}, each: func(i int, e *event.Event) { e.Cost = event.Decimal(1-i/2) * event.One }, want: "-; 0s; -"},
		{about: "a bucket has tokens again",
			rule: `{name: r, match: {api: x}, window: bucket, limit: 1, per: 1s, burst: 2, then: {block: until-reset}}`,
			at:   []event.Micros{0, 0, 0, 2 * second, 2 * second}, want: "-; -; 0s; -; 0s"},
		{about: "a bucket without debt keeps nothing of what is above",
			rule: `{name: r, match: {api: x}, window: bucket, limit: 1, per: 1s, burst: 2, debt: 0, then: {block: until-reset}}`,
			at:   []event.Micros{0, 0, 0, second, second}, want: "-; -; 0s; -; 0s"},
		{about: "devices that are known are not above",
			rule: `{name: r, match: {api: x}, count: {distinct: attrs.d}, limit: 1, per: 1h, then: {block: 1h}}`,
			at:   []event.Micros{0, second, 2 * second, 3 * second}, each: func(i int, e *event.Event) {
				e.Attrs = []event.Attr{{Name: "d", Value: event.Value{Text: strings.Repeat("d", 1+i/2+i/3)}}}
			}, want: "-; -; 0s; 1s"},
		{about: "an event of yesterday counts by yesterday's window, where no verdict is in force",
			rule: `{name: r, match: {api: x}, limit: 1, per: day, window: calendar, then: {block: until-reset}}`,
			at:   []event.Micros{0, day - 12*event.Hour, -second + day/2}, want: "-; -; none"},
		{about: "the key's tier", rule: `{name: r, match: {api: x}, limit: 1, per: 1h, tiers: [{when: cost > 1, limit: 5}], then: {block: until-reset}}`,
			at: []event.Micros{0, second, second}, each: func(i int, e *event.Event) { e.Cost = event.Decimal(1+i%2) * event.One }, want: "-; -; 0s"},
		{about: "no tier limits them", rule: `{name: r, match: {api: x}, limit: 1, per: 1h, tiers: [{when: cost > 0, unlimited: true}], then: {block: until-reset}}`,
			at: []event.Micros{0, second}, want: "-; -"},
		{about: "in shadow mode it says what would be above",
			rule: `{name: r, match: {api: x}, limit: 1, per: 1h, mode: shadow, then: {block: until-reset}}`,
			at:   []event.Micros{0, second}, want: "-; 1s shadow"},
		{about: "a candidate is tried beside its limit",
			rule: `{name: r, match: {api: x}, limit: 9, per: 1h, candidate: {limit: 1}, then: {block: until-reset}}`,
			at:   []event.Micros{0, second}, want: "-; -"},
		{about: "so is a bucket's", rule: `{name: r, match: {api: x}, window: bucket, limit: 9, per: 1h, candidate: {limit: 1}, then: {block: until-reset}}`,
			at: []event.Micros{0, second, second}, want: "-; -; -"},
		{about: "a rule that only warns keeps nothing out", rule: `{name: r, match: {api: x}, limit: 1, per: 1h, warn: [50%]}`,
			at: []event.Micros{0, second}, want: "-; -"},
		{about: "a strict rule needs no verdict to keep events out", rule: `{name: r, match: {api: x}, limit: 1, per: 1h, strict: true}`,
			at: []event.Micros{0, second}, want: "-; none"},
		{about: "the exempt are not above", rule: `{name: r, match: {api: x}, limit: 1, per: 1h, then: {block: until-reset}}`,
			at: []event.Micros{0, second}, each: func(_ int, e *event.Event) { e.UID = "vip" }, want: "-; -"},
		{about: "each of stacked limits is one of its own",
			rule: `{name: r, match: {api: x}, limits: [{name: a, limit: 1, per: 1h}, {name: b, limit: 2, per: 1d}], then: {block: until-reset}}`,
			at:   []event.Micros{0, second, second}, want: "-; 1s; 1s 0s"},
	} {
		t.Run(tt.about, func(t *testing.T) {
			set := compiled(t, aboveRules+tt.rule)
			matcher, stepper := set.NewMatcher(), set.NewStepper()
			var state []byte
			var got []string
			for i, at := range tt.at {
				e := &event.Event{API: "x", UID: "u", Time: noon + at, Cost: event.One}
				if tt.each != nil {
					tt.each(i, e)
				}
				works := matcher.Match(e, e.Time)
				next, _ := stepper.Step(nil, state, Input{Key: works[0].Key, Hits: works[0].Hits, At: e.Time})
				state = next
				got = append(got, saidAbove(stepper.Above()))
			}
			if said := strings.Join(got, "; "); said != tt.want {
				t.Errorf("above are %s, want %s", said, tt.want)
			}
		})
	}
}

func saidAbove(all []Above) string {
	var said []string
	for _, a := range all {
		text := a.Since.Duration().String()
		if a.Since == event.NoTime {
			text = "none"
		}
		if a.Shadow {
			text += " shadow"
		}
		said = append(said, text)
	}
	if said == nil {
		return "-"
	}
	return strings.Join(said, " ")
}
