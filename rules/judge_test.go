package rules

import (
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
	"github.com/tallygate/tallygate/windows"
)

// changing is a rule file whose one rule the tests change.
const changing = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - name: orders
      match: {api: order.create}
      limit: 10
      per: 1h
      then: {block: until-reset}
`

// reloaded counts six orders under the rules as they were, and one under those that came.
func reloaded(t *testing.T, before, after string) []verdict.Verdict {
	t.Helper()
	in := Input{Key: []byte("uid=42"), At: noon}
	old := compiled(t, before)
	in.Hits = []Hit{{Limit: old.Limits[0], Amount: 6 * event.One}}
	state, res := old.NewStepper().Step(nil, nil, in)
	if len(res.Changes) > 0 {
		t.Fatalf("six orders of ten: %+v", res.Changes)
	}
	set := compiled(t, after)
	in.Hits = []Hit{{Limit: set.Limits[0], Amount: event.One}}
	_, res = set.NewStepper().Step(nil, state, in)
	return res.Changes
}

func TestALoweredLimitIsJudgedByTheCountersThereAre(t *testing.T) {
	changes := reloaded(t, changing, strings.Replace(changing, "limit: 10", "limit: 5", 1))
	if len(changes) != 1 || changes[0].Count != 7*event.One || changes[0].Limit != 5*event.One {
		t.Errorf("a limit lowered to 5 after 6 events: %+v, want a block at 7 of 5", changes)
	}
}

func TestAChangedWindowStartsEmpty(t *testing.T) {
	changes := reloaded(t, changing, strings.Replace(strings.Replace(changing, "limit: 10", "limit: 5", 1), "per: 1h", "per: 2h", 1))
	if len(changes) > 0 {
		t.Errorf("another window, another count: %+v", changes)
	}
}

// quiet is a shortcut past the judge: it may not leave out what would fall.
func TestQuietIsWhatLetsNothingFall(t *testing.T) {
	set := compiled(t, bookRules)
	for _, l := range set.Limits {
		for count := l.threshold() - 2*event.One; count <= l.threshold()+2*event.One; count += event.One / 2 {
			for _, c := range []event.Decimal{count - 1, count, count + 1} {
				if l.quiet(windows.Added{Count: c}) == l.passes(c, l.threshold()) {
					t.Errorf("%s: a count of %v is quiet, and passes %v", l.Name, c, l.threshold())
				}
			}
		}
	}
}

// Enforcers release those who wait one by one at the limit's rate: a throttle's verdict says what it
// is, and no other verdict has become longer.
func TestAThrottleSaysHowFastItsLimitIs(t *testing.T) {
	for _, c := range []struct {
		rule  string
		per   event.Micros
		every event.Micros
	}{
		{"limit: 10, per: 1m, then: {block: 1m, action: throttle}", event.Minute, 6 * event.Second},
		{"limit: 10, per: 1m, window: sliding, then: {block: 1m, action: throttle}", event.Minute, 6 * event.Second},
		{"limit: 8, per: day, window: calendar, timezone: Europe/Berlin, then: {block: until-reset, action: throttle}", 23 * event.Hour, 23 * event.Hour / 8},
		{"limit: 10, gap: 30s, window: session, then: {block: 1m, action: throttle}", 30 * event.Second, 3 * event.Second},
		{"limit: 60, per: 1m, window: bucket, then: {block: until-reset, action: throttle}", event.Minute, event.Second},
		{"limit: 60, per: 1m, window: bucket, burst: 5, then: {block: until-reset, action: throttle}", 5 * event.Second, event.Second},
		{"limit: 10, per: 1m, then: {block: 1m}", 0, 100 * event.Millisecond},
		{"limit: 10, per: 1m, then: {block: 1m, action: challenge}", 0, 100 * event.Millisecond},
	} {
		set := compiled(t, strings.Replace(changing, `
    - name: orders
      match: {api: order.create}
      limit: 10
      per: 1h
      then: {block: until-reset}`, "\n    - {name: orders, match: {api: order.create}, "+c.rule+"}", 1))
		_, res := set.NewStepper().Step(nil, nil, Input{Key: []byte("uid=42"), At: noon, Hits: []Hit{{Limit: set.Limits[0], Amount: 70 * event.One}}})
		if len(res.Changes) != 1 || res.Changes[0].Per != c.per || res.Changes[0].Interval() != c.every {
			t.Errorf("%s: %+v, want per %v and one every %v", c.rule, res.Changes, c.per.Duration(), c.every.Duration())
		}
	}
}
