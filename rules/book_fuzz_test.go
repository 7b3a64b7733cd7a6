package rules

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

func hashOfID(id string) uint64 { return xxhash.Sum64String(id) }

// bookRules have each part of the language, on a scale on which short timelines reach all ends.
const bookRules = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: book}
spec:
  max_lateness: 5m
  recent_ids: {count: 8, for: 3s}
  exempt: [{uid: u2, reason: a test, expires: 2026-03-08T07:05:00Z}]
  rules:
    - name: tiers
      match: {api: x}
      limit: 3
      per: 10s
      window: tumbling
      tiers: [{when: 'attrs.plan == "pro"', limit: 6}, {when: 'attrs.plan == "own"', unlimited: true}, {when: 'attrs.plan == "shut"', limit: 0}]
      candidate: {limit: 2}
      warn: [50%, 100%]
      then: {block: until-reset}
    - {name: extended, match: {api: x}, limit: 3, per: 5s, then: {block: 2s, extend: true}}
    - {name: growing, match: {api: x}, limit: 2, per: 7s, then: {escalate: [1s, 5s, 20s], forget: 30s, reset: true}}
    - {name: growing-back, match: {api: x}, limit: 2, per: 7s, then: {escalate: [1s, 5s, 9s, 20s], forget: {step: 6s}}}
    - {name: growing-more, match: {api: x}, limit: 2, per: 7s, candidate: {limit: 4}, then: {escalate: [1s, 5s], forget: 10s, extend: true}}
    - {name: visit, match: {api: x}, window: session, gap: 4s, limit: 5, warn: 40%, then: {block: until-reset}}
    - {name: visit-devices, match: {api: x}, count: {distinct: attrs.device}, window: session, gap: 4s, limit: 2, warn: 50%, then: {block: 3s, extend: true}}
    - {name: bucket, match: {api: x}, window: bucket, limit: 2, per: 1s, burst: 4, candidate: {limit: 3}, then: {block: until-reset}}
    - {name: bucket-no-debt, match: {api: x}, window: bucket, limit: 1, per: 1s, burst: 3, debt: 0, then: {block: until-reset}}
    - {name: bucket-reset, match: {api: x}, window: bucket, limit: 1, per: 1s, burst: 3, then: {block: 3s, reset: true}}
    - {name: devices, match: {api: x}, count: {distinct: attrs.device}, limit: 3, per: 10s, then: {block: until-reset}}
    - {name: devices-panes, match: {api: x}, count: {distinct: attrs.device}, limit: 3, candidate: {limit: 100}, per: 10s, then: {block: until-reset}}
    - {name: devices-growing, match: {api: x}, count: {distinct: attrs.device}, limit: 2, per: 30s, window: tumbling, then: {escalate: [1s, 3s], forget: 10s}}
    - {name: returns, match: {api: x}, refunds: true, limit: 4, per: 20s, window: tumbling, then: {block: until-reset}}
    - {name: returns-exact, match: {api: x}, refunds: true, limit: 4, per: 6s, then: {block: until-reset}, tiers: [{when: 'attrs.plan == "pro"', limit: 5}]}
    - {name: returns-sum, match: {api: x}, count: {sum: cost}, refunds: true, limit: 7.5, per: 1m, then: {block: until-reset}, candidate: {limit: 4}}
    - {name: returns-reset, match: {api: x}, refunds: true, limit: 4, per: 20s, window: tumbling, then: {block: 1s, reset: true}}
    - {name: growing-both, match: {api: x}, limit: 4, per: 20s, window: tumbling, candidate: {limit: 2}, then: {escalate: [1s, 5s], forget: 30s, reset: true}}
    - {name: at-exceeded, match: {api: x}, limit: 3, per: 5s, then: {block: until-reset, at: exceeded}}
    - {name: at-reached, match: {api: x}, limit: 3, per: 5s, then: {block: 4s, at: reached}, candidate: {limit: 5}}
    - {name: hourly, match: {api: x}, limit: 9, per: hour, window: calendar, timezone: America/New_York, warn: [30%, 60%], then: {block: 1m}}
    - {name: hourly-from-five, match: {api: x}, limit: 9, per: day, window: calendar, timezone: America/New_York, offset: 5h, then: {block: until-reset}}
    - {name: watched, match: {api: x}, limit: 4, per: 10s, mode: shadow, warn: [50%], then: {block: until-reset}}
    - {name: permitted, match: {api: x}, limit: 3, per: 8s, strict: true}
    - {name: told, match: {api: x}, limit: 4, per: 9s, warn: [25%, 75%]}
    - {name: hops, match: {api: x}, limit: 4, per: 12s, window: hopping, every: 4s, candidate: {limit: 3}, warn: [50%], tiers: [{when: 'attrs.plan == "pro"', limit: 6}], then: {block: until-reset}}
    - {name: hops-growing, match: {api: x}, refunds: true, limit: 4, per: 12s, window: hopping, every: 3s, offset: 1s, then: {escalate: [1s, 3s], forget: 10s, reset: true}}
    - {name: hops-returns, match: {api: x}, refunds: true, limit: 5, per: 10s, window: hopping, every: 1s, then: {block: until-reset}}
    - {name: in-a-row, match: {api: x}, reset_on: {api: done, outcome: ok}, limit: 3, per: 20s, then: {block: 6s}}
    - {name: in-a-row-clear, match: {api: x}, refunds: true, reset_on: {api: done, clear: true}, limit: 3, per: 20s, candidate: {limit: 2}, warn: 50%, then: {escalate: [3s, 9s], forget: 20s, extend: true}}
    - {name: in-a-row-quota, match: {api: "*"}, refunds: true, reset_on: {api: done}, limit: 66, per: 20s, candidate: {limit: 3}, then: {block: until-reset}}
    - {name: in-a-row-exact, match: {api: "*"}, reset_on: {api: done}, limit: 3, per: 20s, then: {block: until-reset}}
    - {name: in-a-row-panes, match: {api: x}, count: {sum: cost}, refunds: true, reset_on: {api: done}, limit: 4.5, per: 20s, then: {block: until-reset}}
    - {name: in-a-row-minute, match: {api: x}, refunds: true, reset_on: {api: done, clear: true}, limit: 4, per: 15s, window: tumbling, then: {block: 10s, reset: true}}
    - {name: in-a-row-hops, match: {api: x}, refunds: true, reset_on: {api: done}, limit: 4, per: 12s, window: hopping, every: 3s, then: {block: until-reset}}
    - {name: in-a-row-visit, match: {api: x}, reset_on: {api: done}, limit: 4, gap: 4s, window: session, then: {block: until-reset}}
    - {name: in-a-row-visit-values, match: {api: x}, count: {distinct: attrs.device}, reset_on: {api: done, clear: true}, limit: 2, gap: 4s, window: session, then: {block: 9s}}
    - {name: in-a-row-bucket, match: {api: x}, reset_on: {api: done}, limit: 1, per: 1s, burst: 4, window: bucket, then: {block: until-reset}}
    - {name: in-a-row-devices, match: {api: x}, count: {distinct: attrs.device}, reset_on: {api: done}, limit: 3, per: 20s, then: {block: until-reset}}
    - {name: in-a-row-values, match: {api: x}, count: {distinct: attrs.device}, reset_on: {api: done, clear: true}, limit: 2, per: 15s, window: tumbling, then: {block: 9s}}
    - {name: first, match: {api: x}, refunds: true, limit: 4, per: 9s, window: from-first, candidate: {limit: 3}, warn: 50%, then: {block: until-reset}}
    - {name: first-tiers, match: {api: x}, limit: 4, per: 9s, window: from-first, tiers: [{when: 'attrs.plan == "pro"', limit: 6}],
       then: {block: until-reset}}
    - {name: first-quota, match: {api: x}, refunds: true, reset_on: {api: done},
       limit: 4, per: 9s, window: from-first, candidate: {limit: 3}, warn: 50%, then: {block: until-reset}}
    - {name: first-reset, match: {api: x}, refunds: true, limit: 3, per: 15s, window: from-first, then: {block: 3s, reset: true}}
    - {name: first-sum, match: {api: x}, count: {sum: cost}, refunds: true, reset_on: {api: done, clear: true}, limit: 7.5, per: 15s, window: from-first,
       then: {block: 9s}}
    - {name: first-devices, match: {api: x}, count: {distinct: attrs.device}, reset_on: {api: done, clear: true}, limit: 2, per: 15s, window: from-first,
       then: {block: 9s}}
    - {name: data, match: {api: x}, limit: {from: attrs.quota, else: 3, most: 6}, per: 10s, then: {block: until-reset}}
    - {name: data-tiers, match: {api: x}, refunds: true, limit: {from: attrs.quota, else: 3, most: 70}, tiers: [{when: 'attrs.plan == "own"', unlimited: true}], per: 10s, candidate: {limit: 4}, warn: 50%, then: {block: 3s, extend: true}}
    - {name: data-sum, match: {api: x}, count: {sum: cost}, limit: {from: attrs.quota, else: 3, most: 6.5}, per: 12s, window: hopping, every: 4s, then: {block: until-reset}}
    - {name: nothing, match: {api: x}, refunds: true, reset_on: {api: done}, limit: 0, per: 10s, window: tumbling, then: {block: until-reset}}
    - {name: nothing-exact, match: {api: x}, limit: 0, per: 6s, candidate: {limit: 1}, then: {block: until-reset}}
    - {name: nothing-sum, match: {api: x}, count: {sum: cost}, limit: 2, per: 6s, candidate: {limit: 0}, then: {block: 3s}}
    - {name: nothing-devices, match: {api: x}, count: {distinct: attrs.device}, limit: 0, per: 9s, then: {block: until-reset}}
    - {name: nothing-hops, match: {api: x}, limit: 0, per: 12s, window: hopping, every: 4s, tiers: [{when: 'attrs.plan == "pro"', limit: 2}], then: {block: 2s, extend: true}}
    - {name: nothing-visit, match: {api: x}, limit: 0, gap: 4s, window: session, then: {block: until-reset}}
    - {name: never, match: {api: x}, reset_on: {api: done, outcome: ok, clear: true}, limit: 3, per: 10s, then: {block: forever}}
    - {name: never-again, match: {api: x}, reset_on: {api: done, outcome: ok, clear: true}, limit: 2, per: 7s, candidate: {limit: 4}, then: {escalate: [1s, 5s, forever], forget: 30s, extend: true}}
    - {name: hops-devices, match: {api: x}, count: {distinct: attrs.device}, limit: 3, per: 12s, window: hopping, every: 2s, warn: 50%, then: {block: until-reset}}
`

// bookRulesByAddress are the same for keys of which some networks are exempt.
var bookRulesByAddress = strings.Replace(bookRules, "  exempt: [", `  defaults: {key: [ip, uid]}
  networks: {near: [10.0.0.0/8, 198.51.100.1]}
  exempt: [{ip: 192.0.2.0/25, reason: a network, expires: 2026-03-08T07:02:00Z}, {ip: near, uid: u1, reason: a list, expires: 2026-03-08T07:03:00Z}, `, 1)

// bookSet has them compiled; of most of them it is published what is left.
func bookSet(t testing.TB) *Set {
	told := strings.Replace(bookRulesByAddress, "- name: tiers", "- name: tiers\n      public: tiers\n      quota: true", 1)
	for _, name := range []string{"growing,", "visit", "bucket", "devices", "returns", "watched", "told", "hops", "first", "hourly", "in-a-row", "data"} {
		told = strings.ReplaceAll(told, "{name: "+name, "{public: some, quota: true, name: "+name)
	}
	return compiled(t, told)
}

// TestBookManySteps compares Step with the book over long random timelines. A failure names its
// seed: go test -run TestBookManySteps/seed=N.
func TestBookManySteps(t *testing.T) {
	t.Parallel()
	set := bookSet(t)
	seen := map[string]bool{}
	for seed := range testrun.Depth(60) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), 1))
			compareWithBook(t, set, rng.IntN, 400, func(c bookChange) { seen[c.Rule+" "+c.State.String()+c.Step] = true })
		})
	}
	if !testrun.Deep() {
		return
	}
	for _, want := range []string{
		"tiers block", "tiers clear", "tiers/candidate block", "tiers warn50%", "extended block", "growing block", "growing-more/candidate block", "growing-both block", "growing-both/candidate block",
		"visit block", "visit warn40%", "visit-devices block", "bucket block", "bucket/candidate block", "bucket-reset block", "devices block", "devices-panes block",
		"devices-growing block", "returns block", "returns clear", "returns-exact clear", "returns-sum clear", "returns-sum/candidate clear", "returns-reset block",
		"at-exceeded block", "at-reached block", "hourly warn30%", "hourly block", "watched block", "told warn75%",
		"hops block", "hops clear", "hops warn50%", "hops/candidate block", "hops-growing block", "hops-returns block", "hops-returns clear", "hops-devices block",
		"in-a-row block", "in-a-row-clear block", "in-a-row-clear clear", "in-a-row-clear/candidate clear", "in-a-row-exact clear", "in-a-row-quota/candidate clear", "in-a-row-panes clear",
		"in-a-row-minute clear", "in-a-row-hops clear", "in-a-row-visit clear", "in-a-row-visit-values clear", "in-a-row-bucket clear", "in-a-row-devices clear", "in-a-row-values clear",
		"told: tiers clear", "told: data clear", "told: returns-exact clear", "told: hops clear", "told: data-sum block",
		"first block", "first clear", "first warn50%", "first/candidate block",
		"first-quota clear", "first-reset block", "first-sum block", "first-sum clear", "first-devices block", "first-devices clear",
		"data block", "data clear", "data-tiers block", "data-tiers/candidate block", "data-sum block", "data-sum clear",
	} {
		if !seen[want] {
			t.Errorf("no timeline had: %s", want)
		}
	}
}

// FuzzBook is the same on timelines that a coverage-guided fuzzer finds.
func FuzzBook(f *testing.F) {
	set := bookSet(f)
	f.Add([]byte("some events, and some more of them, some late, and some taken back"))
	f.Fuzz(func(t *testing.T, data []byte) {
		i := 0
		roll := func(n int) int {
			if i++; i > len(data) {
				return 0
			}
			return int(data[i-1]) % n
		}
		compareWithBook(t, set, roll, len(data)/5, func(bookChange) {})
	})
}

// bookEventAt makes an event: mostly soon after the last one, sometimes late or a refund.
func bookEventAt(roll dice, now *event.Micros, i int) *event.Event {
	steps := []event.Micros{0, 1, 50 * event.Millisecond, 300 * event.Millisecond, event.Second, 1_234_567, 4 * event.Second, 21 * event.Second}
	*now += steps[roll(len(steps))]
	if roll(30) == 0 {
		*now += []event.Micros{9 * event.Minute, event.Hour, 13 * event.Hour}[roll(3)]
	}
	e := &event.Event{API: "x", UID: "u" + fmt.Sprint(1+roll(1)), Time: *now, Cost: event.One}
	if roll(5) == 0 {
		e.Time -= event.Micros(1+roll(20)) * []event.Micros{1, 500 * event.Millisecond, 4 * event.Second}[roll(3)]
	}
	costs := []event.Decimal{event.One, event.One, event.One, 2 * event.One, event.One, 0, 5 * event.One}
	e.Cost = costs[roll(len(costs))]
	if plan := []string{"", "", "pro", "own", "shut"}[roll(5)]; plan != "" {
		e.Attrs = append(e.Attrs, event.Attr{Name: "plan", Value: event.Value{Text: plan}})
	}
	if quota := []string{"", "", "1", "2.5", "5", "100", "0"}[roll(7)]; quota != "" {
		e.Attrs = append(e.Attrs, event.Attr{Name: "quota", Value: event.Value{Kind: event.Number, Text: quota}})
	}
	e.Attrs = append(e.Attrs, event.Attr{Name: "device", Value: event.Value{Text: fmt.Sprint("d", roll(6))}})
	if roll(6) > 0 {
		e.ID = fmt.Sprintf("id-%d", i)
	}
	if roll(9) == 0 {
		e.API, e.Outcome = "done", []string{"ok", "no", "limited"}[roll(3)]
		return e
	}
	switch roll(6) {
	case 0:
		e.Cost = -[]event.Decimal{event.One, event.One / 2, 3 * event.One}[roll(3)]
		e.Refunds = fmt.Sprintf("id-%d", max(0, i-1-roll(12)))
	case 1:
		e.ID = fmt.Sprintf("id-%d", max(0, i-roll(9)))
	case 2:
		e.Outcome = event.OutcomeLimited
	}
	return e
}

func compareWithBook(t tester, set *Set, roll dice, steps int, saw func(bookChange)) {
	t.Helper()
	stepper, matcher, book := set.NewStepper(), set.NewMatcher(), newBook(set)
	now := event.FromTime(time.Date(2026, 3, 8, 6, 50, 0, 0, time.UTC))
	uid, ip := fmt.Sprint("u", 1+roll(2)), []string{"203.0.113.1", "192.0.2.1", "10.0.0.1"}[max(0, roll(5)-2)]
	// The exemption that ends last, by minutes from the start; 0 is none.
	minutes := map[string]event.Micros{"u2": 15, "192.0.2.1": 12, "u1 10.0.0.1": 13}
	until := now + max(minutes[uid], minutes[ip], minutes[uid+" "+ip])*event.Minute
	start := now
	exempt := func(_ *Limit, at event.Micros) bool { return until > start && at < until }
	largest, _ := set.LargestState()
	var state []byte
	spent := event.NoTime
	for i := range steps {
		e := bookEventAt(roll, &now, i)
		e.UID, e.IP = uid, netip.MustParseAddr(ip)
		works := matcher.Match(e, e.Time)
		if len(works) == 0 {
			continue
		}
		in := Input{Key: works[0].Key, Hits: works[0].Hits, At: e.Time, ID: e.ID, Cause: verdict.Cause{ID: e.ID, Offset: int64(i)}}
		if spent != event.NoTime && now-2*event.Minute >= spent && roll(2) == 0 {
			state = nil // as the owner does with a key that fell silent
		}
		next, res := stepper.Step(nil, state, in)
		spent = res.SpentAt
		repeat, unknown, late, want := book.step(in, exempt)
		if res.Repeat != repeat || res.Late != late || res.Unknown != unknown {
			t.Fatalf("step %d, %+v: repeat %v, late %d, unknown %v; want %v, %d, %v", i, e, res.Repeat, res.Late, res.Unknown, repeat, late, unknown)
		}
		if diff := cmp.Diff(want, bookChanges(res.Changes)); diff != "" {
			t.Fatalf("step %d, %+v at %v: changes (- the book's):\n%s", i, e, e.Time, diff)
		}
		for _, c := range want {
			if in.Hits[0].Tells {
				c.Rule = "told: " + c.Rule
			}
			saw(c)
		}
		if diff := cmp.Diff(bareAbove(book.above), bareAbove(stepper.Above())); diff != "" {
			t.Fatalf("step %d, %+v at %v: above their limits (- the book's):\n%s", i, e, e.Time, diff)
		}
		if diff := cmp.Diff(bareLeft(book.left), bareLeft(stepper.Left())); diff != "" {
			t.Fatalf("step %d, %+v at %v: left (- the book's):\n%s", i, e, e.Time, diff)
		}
		if err := CheckState(next); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if err := set.Check(next); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if len(next) > largest {
			t.Fatalf("step %d: a state of %d bytes, and LargestState is %d", i, len(next), largest)
		}
		state = next
	}
}

func bookChanges(changes []verdict.Verdict) (out []bookChange) {
	for _, v := range changes {
		out = append(out, bookChange{v.Rule, v.Step, v.State, v.Mode, v.Count, v.Limit, v.Since, v.Until})
	}
	return slices.Clip(out)
}
