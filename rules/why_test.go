package rules

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// drawnRules makes a rule file of random rules. Each draws its conditions from few values, so that events
// miss none, one or several of them.
func drawnRules(roll dice) string {
	pick := func(list ...string) string { return list[roll(len(list))] }
	var b strings.Builder
	b.WriteString("apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: drawn}\nspec:\n  max_lateness: 1m\n" +
		pick("", "  exempt: [{uid: u1, reason: a test}, {ip: 192.0.2.0/24, reason: a network, expires: 2026-11-21T10:00:30Z}]\n") +
		"  networks: {near: [10.0.0.0/8]}\n  rules:\n")
	for i := range 1 + roll(5) {
		fmt.Fprintf(&b, "    - name: r%d\n", i)
		match := []string{"api: " + pick("x", "x.*", `"*"`, "[x, y.*]", "{x: 2, x.a: 3}")}
		if roll(2) == 0 {
			match = append(match, "outcome: "+pick("ok", "[ok, no]", "no"))
		}
		if roll(3) == 0 {
			match = append(match, "attrs.plan: "+pick("pro", "[free, pro]"))
		}
		fmt.Fprintf(&b, "      match: {%s}\n", strings.Join(match, ", "))
		fmt.Fprintf(&b, "      key: %s\n", pick("uid", "ip", "[uid, attrs.plan]", "all", "[api, uid]", "ip/24"))
		if roll(2) == 0 {
			fmt.Fprintf(&b, "      when: '%s'\n", pick(`attrs.n > 5`, `outcome == "ok" and attrs.n != nil`, `not (attrs.plan == "pro" or cost > 1)`,
				`attrs.n > 1 ? uid == "u1" : outcome == "no"`, `inNetwork(ip, "near")`, `time.Minute() > 0 && attrs.plan in ["pro"]`, `let n = attrs.n ?? 3; n > 2 and n < 9`))
		}
		switch roll(7) {
		case 0:
			b.WriteString("      count: {sum: attrs.n}\n")
		case 1:
			b.WriteString("      count: {sum: cost}\n")
		case 2:
			b.WriteString("      count: {distinct: " + pick("attrs.n", "ip", "api") + "}\n")
		case 3:
			b.WriteString("      refunds: true\n")
		case 4:
			b.WriteString("      reset_on: {api: " + pick("x.done", "x", `"*"`) + pick("", ", outcome: ok", ", attrs.plan: pro") + "}\n")
		}
		limit := pick("3", "{from: attrs.n, else: 3, most: 6}")
		b.WriteString("      limit: " + limit + "\n      per: 1m\n      window: " + pick("sliding", "tumbling") + "\n" + pick("", "      mode: shadow\n") + "      then: {block: 1m}\n")
		if roll(4) == 0 {
			b.WriteString("      tiers: [{when: 'attrs.n > 2', limit: 9}]\n")
		}
	}
	return b.String()
}

func drawnEvent(roll dice, at event.Micros) event.Event {
	pick := func(list ...string) string { return list[roll(len(list))] }
	e := event.Event{
		API: pick("x", "x.a", "x.done", "y.b", "z"), UID: pick("", "u1", "u2", "u2"), Outcome: pick("", "ok", "no", "other", "limited"), Time: at, Cost: event.One,
	}
	if roll(4) > 0 {
		e.IP = netip.MustParseAddr(pick("10.0.0.1", "192.0.2.9", "2001:db8::1"))
	}
	if plan := pick("", "free", "pro", "own"); plan != "" {
		e.Attrs = append(e.Attrs, event.Attr{Name: "plan", Value: event.StringValue(plan)})
	}
	if n := pick("", "1", "7", "-2", "2.5"); n != "" {
		e.Attrs = append(e.Attrs, event.Attr{Name: "n", Value: event.Value{Kind: event.Number, Text: n}})
	} else if roll(4) == 0 {
		e.Attrs = append(e.Attrs, event.Attr{Name: "n", Value: event.StringValue("many")})
	}
	switch roll(8) {
	case 0:
		e.Cost, e.Refunds = -event.One, "a"
	case 1:
		e.Cost = event.One / 2
	case 2:
		e.Cost = 2 * event.One
	case 3:
		e.Time = []event.Micros{event.NoTime, at - 2*event.Minute, at - 30*event.Second}[roll(3)]
	}
	return e
}

// compareWhy compares what a Tracer says with what the Matcher does, and returns the reasons that it gave.
func compareWhy(t tester, set *Set, roll dice, events int) (codes []string) {
	t.Helper()
	tracer, matcher := set.NewTracer(), set.NewMatcher()
	base, err := event.ParseMicros("2026-11-21T10:00:00Z")
	if err != nil {
		t.Fatalf("%v", err)
	}
	for range events {
		e := drawnEvent(roll, base)
		broker := []event.Micros{base, base, base, event.NoTime}[roll(4)]
		at, all := tracer.Why(&e, broker)
		wantAt, counts := set.EventTime(&e, broker)
		hits := map[*Rule][]Hit{}
		var skipped []Skip
		if counts {
			for _, w := range matcher.Match(&e, wantAt) {
				for _, h := range w.Hits {
					hits[h.Limit.Rule] = append(hits[h.Limit.Rule], h)
				}
			}
			skipped = matcher.Skipped
		}
		if at != wantAt || len(all) != len(set.All()) {
			t.Fatalf("%+v: %d rules at %v, want %d at %v", e, len(all), at, len(set.All()), wantAt)
		}
		for i := range all {
			w := &all[i]
			want := Passes
			if h := hits[w.Rule]; len(h) > 0 {
				want = map[[2]bool]Does{{}: Counts, {true, false}: TakesBack, {false, true}: Resets}[[2]bool{h[0].Refund, h[0].Reset}]
				if h[0].Tells {
					want = Tells
				}
			}
			if w.Does != want || (want == Passes) != (len(w.Unmet) > 0) || !slices.Equal(w.Hits, hits[w.Rule]) {
				t.Fatalf("%+v: rule %s %s (%v), hits %v; the matcher: %s, %v", e, w.Rule.Name, w.Does, w.Unmet, w.Hits, want, hits[w.Rule])
			}
			if want != Passes && w.Key == nil {
				t.Fatalf("%+v: rule %s has no key", e, w.Rule.Name)
			}
			for _, skip := range skipped {
				if skip.Rule == w.Rule && !slices.ContainsFunc(append(slices.Clone(w.Unmet), w.Notes...), func(r Reason) bool { return r.Code == skip.Reason }) {
					t.Fatalf("%+v: the matcher skips %s for %s, and that is not among %v", e, w.Rule.Name, skip.Reason, w.Unmet)
				}
			}
			for _, r := range w.Unmet {
				codes = append(codes, r.Code)
			}
		}
	}
	return codes
}

// Whatever the rules and the events: a rule has no reason to pass an event over exactly if it counts it.
func TestReasonsAgreeWithTheMatcher(t *testing.T) {
	seed := rand.New(rand.NewPCG(testrun.Seed(t), 3)).IntN
	seen, sets := map[string]int{}, 0
	for range 400 {
		set, err := Compile("drawn.yaml", []byte(drawnRules(seed)))
		if err != nil {
			continue // such as refunds of distinct values
		}
		sets++
		for _, code := range compareWhy(t, set, seed, 40) {
			seen[code]++
		}
	}
	if sets < 100 {
		t.Errorf("only %d rule files compile", sets)
	}
	for _, code := range []string{
		PassAPI, PassOutcome, PassAttr, PassDimension, PassWhen, PassRefund, PassTooOld, PassNoTime, SkipWhen, SkipAbsent, SkipNumber, SkipNegative, SkipFraction,
	} {
		if seen[code] == 0 {
			t.Errorf("no event had the reason %s", code)
		}
	}
}

func FuzzWhy(f *testing.F) {
	f.Add([]byte("some rules, and some events that they may be for, or not"))
	f.Fuzz(func(t *testing.T, data []byte) {
		i := 0
		roll := func(n int) int {
			if i++; i > len(data) {
				return 0
			}
			return int(data[i-1]) % n
		}
		set, err := Compile("drawn.yaml", []byte(drawnRules(roll)))
		if err != nil {
			return
		}
		compareWhy(t, set, roll, 1+len(data)/8)
	})
}

const whyRules = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: why}
spec:
  max_lateness: 1h
  networks: {office: [10.0.0.0/8]}
  rules:
    - {name: failures, match: {api: login, outcome: failure}, limit: 3, per: 1m, then: {block: 1m}}
    - {name: many, match: {api: [a, b*, c, d, e, f, g, h]}, limit: 3, per: 1m, then: {block: 1m}}
    - {name: pro, match: {api: login, attrs.plan: pro}, key: [uid, ip], limit: 3, per: 1m, then: {block: 1m}}
    - {name: large, match: {api: login}, when: 'attrs.amount > 100', limit: 3, per: 1m, then: {block: 1m}}
    - {name: both, match: {api: login}, when: 'attrs.plan == "free" and (cost > 5 or attrs.amount > 70)', limit: 3, per: 1m, then: {block: 1m}}
    - {name: far, match: {api: login}, when: 'attrs.plan == "free" and not inNetwork(ip, "office") and time.Hour() > 2', limit: 3, per: 1m, then: {block: 1m}}
    - {name: summed, match: {api: login}, count: {sum: attrs.bytes}, limit: 3, per: 1m, then: {block: 1m}}
    - {name: in-a-row, match: {api: login, outcome: failure}, reset_on: {api: login, outcome: success}, limit: 3, per: 1m, then: {block: 1m}}
    - {name: local, scope: instance, match: {api: login}, limit: 3, per: 1s, window: bucket}
`

// What is told reads as a sentence, and names what the event has and what the rule wants.
func TestReasonsInWords(t *testing.T) {
	set := compiled(t, whyRules)
	now, err := event.ParseMicros("2026-11-21T10:00:00Z")
	if err != nil {
		t.Fatal(err)
	}
	attr := func(name string, kind event.Kind, text string) event.Attr {
		return event.Attr{Name: name, Value: event.Value{Kind: kind, Text: text}}
	}
	login := event.Event{API: "login", UID: "42", Outcome: "denied", Cost: event.One, Time: now, Attrs: []event.Attr{attr("plan", event.String, "free"), attr("amount", event.Number, "50")}}
	failed := login
	failed.Attrs = []event.Attr{attr("amount", event.String, "50"), attr("bytes", event.Number, "-2")}
	office, done, nobody, back := login, login, login, login
	office.IP = netip.MustParseAddr("10.1.2.3")
	done.Outcome = "success"
	nobody.UID, nobody.Outcome = "", ""
	back.Cost, back.Refunds = -event.One, "x"
	for _, tc := range []struct {
		rule   string
		e      event.Event
		broker event.Micros
		want   string
	}{
		{"failures", login, now, "outcome is denied, not failure"},
		{"failures", nobody, now, "outcome is absent, not failure; no uid"},
		{"failures", login, now + 26*event.Hour, "outcome is denied, not failure; too old: it happened 1d2h before its broker time 2026-11-22T12:00:00Z, max_lateness is 1h"},
		{"failures", back, now, "cost is negative, and the rule has no refunds: true"},
		{"many", login, now, "api is login, not a, b*, c, d, e, f or 2 others"},
		{"pro", login, now, "attrs.plan is free, not pro; no ip"},
		{"pro", failed, now, "attrs.plan is absent, not pro; no ip"},
		{"large", login, now, "when: attrs.amount > 100 is false (attrs.amount is 50)"},
		{"large", failed, now, `when: attrs.amount > 100 cannot be evaluated (attrs.amount is "50")`},
		{"both", login, now, "when: cost > 5 or attrs.amount > 70 is false (cost is 1, attrs.amount is 50)"},
		{"both", failed, now, `when: attrs.plan == "free" is false (attrs.plan is absent)`},
		{"far", office, now, `when: not inNetwork(ip, "office") is false (ip is "10.1.2.3")`},
		{"far", login, now, "counts"},
		{"summed", login, now, "no attrs.bytes, which it counts"},
		{"summed", failed, now, "attrs.bytes is -2, which is negative"},
		{"in-a-row", done, now, "resets"},
		{"local", login, now, "it counts requests before their actions, and no events (scope: instance)"},
	} {
		_, all := set.NewTracer().Why(&tc.e, tc.broker)
		for i := range all {
			if all[i].Rule.Name != tc.rule {
				continue
			}
			got := all[i].Does.String()
			if all[i].Does == Passes {
				var parts []string
				for _, r := range all[i].Unmet {
					parts = append(parts, r.Text)
				}
				got = strings.Join(parts, "; ")
			}
			if got != tc.want {
				t.Errorf("%s of %s:\n got %s\nwant %s", tc.rule, event.AppendJSON(nil, &tc.e), got, tc.want)
			}
		}
	}
}

// The exemption that is named is one exactly where the index says that the key is exempt.
func TestTheExemptionThatIsNamed(t *testing.T) {
	set := compiled(t, strings.Replace(whyRules, "  rules:", `  exempt:
    - {uid: 42, reason: for a while, expires: 2026-11-21T10:00:00Z}
    - {uid: 42, ip: 10.0.0.0/8, reason: a network}
    - {ip: office, reason: a list, expires: 2026-11-21T11:00:00Z}
  rules:`, 1))
	from, err := event.ParseMicros("2026-11-21T09:00:00Z")
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]bool{}
	for _, r := range set.All() {
		for _, uid := range []string{"42", "43"} {
			for _, ip := range []string{"10.0.0.1", "192.0.2.1", "2001:db8::1"} {
				key := []event.Dim{{Name: "uid", Value: uid}}
				if len(r.Shape.Dims) == 2 {
					key = []event.Dim{{Name: "ip", Value: ip}, key[0]}
				}
				for at := from; at < from+3*event.Hour; at += 30 * event.Minute {
					by := r.ExemptBy(key, at)
					if (by != nil) != r.exemptKeys.covers(key, at) {
						t.Errorf("%s, %v at %v: by %v, and the index says otherwise", r.Name, key, at, by)
					}
					if by != nil {
						reasons[by.Reason] = true
					}
				}
			}
		}
	}
	if len(reasons) != 3 {
		t.Errorf("named: %v", reasons)
	}
}
