package rules

import (
	"strings"
	"testing"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
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
