package rules

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

// timedPredicates change at whole minutes.
var timedPredicates = []string{
	`time.Hour() >= 22 or time.Hour() < 6`,
	`time.In(timezone("America/New_York")).Hour() in [1, 2, 9]`,
	`time.In(timezone("Asia/Kathmandu")).Hour() % 2 == 0`,
	`int(time.In(timezone("America/New_York")).Weekday()) in [0, 6]`,
	`time.Minute() >= 30`,
	`time >= date("2026-11-01T07:31:00Z")`,
	`time.Format("15:04") > "12:17"`,
	`attrs.plan == "pro"`, // known, if it stands first
}

// timedRules are one rule for each kind of window, with the same random tiers.
func timedRules(roll dice) string {
	var tiers []string
	for i := range 1 + roll(3) {
		when := timedPredicates[roll(len(timedPredicates)-min(i, 1))]
		limit := fmt.Sprint("limit: ", 1+roll(6))
		if roll(8) == 0 {
			limit = "unlimited: true"
		}
		if text := fmt.Sprintf("{when: '%s', %s}", when, limit); !strings.Contains(strings.Join(tiers, ""), when) {
			tiers = append(tiers, text)
		}
	}
	text := "apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: s}\nspec:\n  rules:\n"
	for i, window := range []string{
		"window: tumbling, per: 6h", "window: sliding, per: 3h", "window: hopping, per: 4h, every: 1h", "window: session, gap: 90m",
		"window: calendar, per: day, timezone: America/New_York",
	} {
		text += fmt.Sprintf("    - {name: r%d, match: {api: x}, limit: %d, %s, tiers: [%s], then: {block: until-reset}}\n", i, 1+roll(6), window, strings.Join(tiers, ", "))
	}
	return text
}

// A quota's end is the first moment from which the count is below the limit that is in force then: found here by
// asking the matcher for each minute's tier.
func TestBlocksEndWhereATierByTimeComes(t *testing.T) {
	t.Parallel()
	for seed := range testrun.Depth(8) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			roll := rand.New(rand.NewPCG(uint64(seed), 2)).IntN
			text := timedRules(roll)
			set, err := Compile("rules.yaml", []byte(text))
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			r := &timedRig{set: set, matcher: set.NewMatcher(), stepper: set.NewStepper(), last: map[string]verdict.Verdict{}}
			now := event.FromTime(time.Date(2026, 10, 31, 10, 0, 0, 0, time.UTC)) // New York's clocks change in the night
			for range 25 {
				now += []event.Micros{0, event.Minute, 7 * event.Minute, 40 * event.Minute, 5 * event.Hour}[roll(5)]
				e := &event.Event{UID: "u1", API: "x", Cost: event.One, Time: now}
				if roll(3) == 0 {
					e.Attrs = []event.Attr{{Name: "plan", Value: event.Value{Text: "pro"}}}
				}
				r.step(e)
				for _, l := range set.Limits {
					r.compare(t, l, e)
				}
				if t.Failed() {
					t.Fatal(text)
				}
			}
		})
	}
}

type timedRig struct {
	set     *Set
	matcher *Matcher
	stepper *Stepper
	state   []byte
	last    map[string]verdict.Verdict
}

func (r *timedRig) step(e *event.Event) {
	for _, w := range r.matcher.Match(e, e.Time) {
		next, res := r.stepper.Step(nil, r.state, Input{Key: w.Key, Hits: w.Hits, At: e.Time})
		r.state = next
		for _, v := range res.Changes {
			r.last[v.Rule] = v
		}
	}
}

// compare looks for the end of what is in force behind an event.
func (r *timedRig) compare(t *testing.T, l *Limit, e *event.Event) {
	t.Helper()
	k := r.stepper.read(r.state)
	window := r.stepper.take(r.stepper.find(&k, l))
	end := e.Time
	for ; ; end += event.Minute {
		later := *e
		later.Time = end
		limit := l.threshold()
		for _, hit := range r.matcher.Match(&later, end)[0].Hits {
			if hit.Limit == l && hit.Tier > 0 {
				limit = l.Tiers[hit.Tier-1].Limit
			}
		}
		if limit == Unlimited || l.Window.CountAt(window, end) < limit {
			break
		}
	}
	v, until := r.last[l.Name], e.Time
	if v.State == verdict.Block {
		until = max(until, v.Until)
	}
	if until < end || until > roundUp(end, l.Grain) {
		t.Errorf("%s: at %v a block holds until %v, want %v", l.Name, e.Time.Time(), until.Time(), end.Time())
	}
}
