package rules

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// describeWants says of each want what matters.
func describeWants(wants []Want) (out []string) {
	for _, w := range wants {
		text := fmt.Sprintf("%s %s %v of %v", w.Limit.Name, w.Key, w.Amount, w.Threshold)
		if w.AnyTier {
			text += " any tier"
		}
		if w.Exempt {
			text += " exempt"
		}
		out = append(out, text)
	}
	return out
}

const strictRules = `
  exempt: [{uid: probe, reason: ours}, {uid: past, reason: ours, expires: 2020-01-01T00:00:00Z}]
  rules:
    - {name: sms, match: {api: sms.send, outcome: success}, when: attrs.country != "DE" and outcome != "test", limit: 100, per: 1h, strict: true}
    - {name: shadow, match: {api: sms.send}, limit: 100, per: 1h, strict: true, mode: shadow}
    - {name: verdicts, match: {api: sms.send}, limit: 100, per: 1h, then: {block: 1m}}
    - {name: at-once, key: [uid, ip], match: {api: {sms.send: 2}, attrs.kind: bulk}, window: in-flight, limit: 3, strict: true}
    - {name: bytes, match: {api: "*.send"}, count: {sum: attrs.bytes}, window: bucket, limit: 10, per: 1s, burst: 20, strict: true, candidate: {limit: 5}, then: {block: 1m}}
    - name: tiers
      match: {api: tiers}
      limits: [{name: a, limit: 10, per: 1h}, {name: b, limit: 20, per: 1d, tiers: [{when: attrs.plan == "pro", limit: 40}, {when: outcome == "x" or attrs.n == 1, limit: 5}, {when: attrs.own == true, unlimited: true}]}]
      strict: true
    - {name: all, key: [], match: {api: "*"}, limit: 10, per: 1s, scope: instance}
    - {name: by-api, key: [api, ip/64], match: {api: tiers}, when: attrs.plan == nil, limit: 10, per: 1s, scope: instance}
`

func TestWants(t *testing.T) {
	set := compiled(t, header+strings.TrimPrefix(strictRules, "\n"))
	if len(set.Rules) != 5 || len(set.Limits) != 7 || len(set.InFlight) != 1 || len(set.Instance) != 2 || len(set.All()) != 8 {
		t.Fatalf("%d rules, %d limits, %d in flight, %d of an instance, %d in all", len(set.Rules), len(set.Limits), len(set.InFlight), len(set.Instance), len(set.All()))
	}
	attrs := func(pairs ...string) (out []event.Attr) {
		for i := 0; i < len(pairs); i += 2 {
			kind := event.String
			if _, err := event.ParseDecimal(pairs[i+1]); err == nil {
				kind = event.Number
			}
			out = append(out, event.Attr{Name: pairs[i], Value: event.Value{Kind: kind, Text: pairs[i+1]}})
		}
		return out
	}
	v6 := netip.MustParseAddr("2001:db8::1")
	strict, instance := NewRequests(set.Strict()), NewRequests(set.Instance)
	for i, test := range []struct {
		q    *Requests
		e    event.Event
		want []string
	}{
		{strict, event.Event{API: "sms.send", UID: "42"}, []string{"sms uid=42 1 of 100"}}, // no ip, no bytes
		{strict, event.Event{API: "sms.send", UID: "42", Cost: 3 * event.One, IP: v6}, []string{"sms uid=42 3 of 100", "at-once ip=2001%3Adb8%3A%3A1&uid=42 6 of 3"}},
		{strict, event.Event{API: "sms.send", UID: "42", Attrs: attrs("country", "DE", "bytes", "1.5")}, []string{"bytes uid=42 1.5 of 20"}},
		{strict, event.Event{API: "sms.send", UID: "42", IP: v6, Outcome: "failure", Attrs: attrs("kind", "bulk", "country", "FR")}, []string{"at-once ip=2001%3Adb8%3A%3A1&uid=42 2 of 3"}},
		{strict, event.Event{API: "sms.send", UID: "42", IP: v6, Outcome: "test", Attrs: attrs("kind", "single")}, nil},
		{strict, event.Event{API: "sms.send"}, nil},
		{strict, event.Event{API: "other", UID: "42"}, nil},
		{strict, event.Event{API: "sms.send", UID: "42", Cost: -event.One, Refunds: "x"}, nil},
		{strict, event.Event{API: "x.send", UID: "probe", Attrs: attrs("bytes", "7")}, []string{"bytes uid=probe 7 of 20 exempt"}},
		{strict, event.Event{API: "x.send", UID: "past", Attrs: attrs("bytes", "7")}, []string{"bytes uid=past 7 of 20"}},
		{strict, event.Event{API: "tiers", UID: "42"}, []string{"tiers/a uid=42 1 of 10", "tiers/b uid=42 1 of 5 any tier"}},
		{strict, event.Event{API: "tiers", UID: "42", Attrs: attrs("plan", "pro")}, []string{"tiers/a uid=42 1 of 10", "tiers/b uid=42 1 of 40"}},
		{strict, event.Event{API: "tiers", UID: "42", Outcome: "y", Attrs: attrs("plan", "free", "n", "2")}, []string{"tiers/a uid=42 1 of 10", "tiers/b uid=42 1 of 20 any tier"}},
		{strict, event.Event{API: "tiers", UID: "42", Outcome: "y", Attrs: attrs("plan", "free", "n", "2", "own", "no")}, []string{"tiers/a uid=42 1 of 10", "tiers/b uid=42 1 of 20"}},
		{instance, event.Event{API: "tiers", UID: "42"}, []string{"all  1 of 10"}},
		{instance, event.Event{API: "tiers", IP: v6, Cost: 2 * event.One}, []string{"all  2 of 10", "by-api api=tiers&ip/64=2001%3Adb8%3A%3A%2F64 2 of 10"}},
		{instance, event.Event{API: "tiers", IP: v6, Attrs: attrs("plan", "pro")}, []string{"all  1 of 10"}},
	} {
		if test.e.Cost == 0 {
			test.e.Cost = event.One
		}
		at := event.Micros(1_700_000_000) * event.Second
		if diff := cmp.Diff(test.want, describeWants(test.q.Wants(&test.e, at))); diff != "" {
			t.Errorf("%d: %+v (- want)\n%s", i, test.e, diff)
		}
	}
}

// An exemption that ends is none while the time is not known: then a permit is asked for.
func TestAnExemptionThatEndsNeedsTheTime(t *testing.T) {
	set := compiled(t, header+"  rules:\n    - {name: a, match: {api: x}, limit: 1, per: 1m, strict: true, exempt: [{uid: u, reason: r, expires: 2030-01-01T00:00:00Z}]}\n")
	q := NewRequests(set.Strict())
	e := &event.Event{API: "x", UID: "u", Cost: event.One}
	for at, want := range map[event.Micros]bool{event.NoTime: false, 0: true, event.MaxTime: false} {
		if got := q.Wants(e, at); len(got) != 1 || got[0].Exempt != want {
			t.Errorf("at %d: %+v", at, got)
		}
	}
}

// Strict or not, what is counted is the same, and under the same names: switching it on loses nothing.
func TestStrictChangesNoCounter(t *testing.T) {
	const rule = "  rules:\n    - {name: a, match: {api: x}, limits: [{name: b, limit: 5, per: 1m}, {name: c, window: bucket, limit: 9, per: 1s}], then: {block: until-reset}"
	plain, strict := compiled(t, header+rule+"}\n"), compiled(t, header+rule+", strict: {hold: 10s, ahead: 1s, lost: return}, action: throttle}\n")
	for i, l := range plain.Limits {
		s := strict.Limits[i]
		if l.Hash != s.Hash || l.judged != s.judged || l.displayHashes != s.displayHashes {
			t.Errorf("%s has other counters, or judges otherwise", l.Name)
		}
	}
	if s := strict.Rules[0].Strict; *s != (Strict{Hold: 10 * event.Second, Lost: LostReturn, Ahead: event.Second}) {
		t.Errorf("%+v", s)
	}
}

// Whatever an event turns out to be, a request with a part of it asked for what it counts.
func TestWantsCoverWhatWillCount(t *testing.T) {
	const rules = `  rules:
    - {name: a, match: {api: "*", outcome: [ok, done]}, when: attrs.n > 2 or outcome == "done", limit: 5, per: 1m, strict: true}
    - {name: b, key: [ip, uid], match: {api: {x: 2, "y*": 3}, attrs.kind: [k1, k2]}, limit: 5, per: 1h, strict: true}
    - {name: c, key: attrs.item, match: {api: x}, count: {sum: attrs.n}, when: not (outcome == "ok" and attrs.kind == "k1"), window: tumbling, limit: 50, per: 1h, strict: true,
       tiers: [{when: attrs.kind == "k2" and attrs.n < 4, limit: 9}, {when: outcome == "ok", limit: 70}]}
    - {name: d, key: all, match: {api: "y*"}, limit: 5, per: 1m, strict: true}
    - {name: e, key: [api, ip/31], match: {api: "*", attrs.kind: k1}, limit: 5, per: 1m, strict: true}
    - {name: f, key: [api, attrs.item, ip/24/48, uid], match: {api: [x, z]}, limit: 5, per: 1m, strict: true}
`
	set := compiled(t, header+rules)
	instance := compiled(t, header+strings.NewReplacer("strict: true", "scope: instance", ", outcome: [ok, done]", "", ` or outcome == "done"`, "", `outcome == "ok" and `, "",
		`when: outcome == "ok", limit: 70`, `when: uid == "u1", limit: 70`).Replace(rules))
	plain := compiled(t, header+strings.NewReplacer("strict: true", "then: {block: 1m}", ", outcome: [ok, done]", "", ` or outcome == "done"`, "", `outcome == "ok" and `, "",
		`when: outcome == "ok", limit: 70`, `when: uid == "u1", limit: 70`).Replace(rules))
	permits := set.NewPermits()
	m, q, here, mp := set.NewMatcher(), NewRequests(set.Strict()), NewRequests(instance.Instance), plain.NewMatcher()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 2))
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	counted := 0
	for range 20_000 {
		e := event.Event{API: one("x", "y", "yy", "z"), UID: one("", "u1", "u2"), Outcome: one("ok", "done", "failed"), Cost: event.Decimal(r.IntN(5)) * event.One / 2}
		if r.IntN(3) > 0 {
			e.IP = netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(3))})
		}
		for name, value := range map[string]event.Value{
			"kind": {Text: one("k1", "k2", "k3")}, "item": {Text: one("i1", "i 2")}, "n": {Kind: event.Number, Text: fmt.Sprint(r.IntN(6))},
		} {
			if r.IntN(4) > 0 {
				e.Attrs = append(e.Attrs, event.Attr{Name: name, Value: value})
			}
		}
		if got, want := wantsAsHits(here.Wants(&e, noon)), hitsOf(mp.Match(&e, noon)); !slices.Equal(got, want) {
			t.Fatalf("seed %d: of an instance %+v wants %v, and would count %v", seed, e, got, want)
		}
		part := e
		part.Outcome, part.Attrs = "", nil
		for _, a := range e.Attrs {
			if a.Name != "kind" || r.IntN(2) == 0 { // keys and amounts are known
				part.Attrs = append(part.Attrs, a)
			}
		}
		wants := q.Wants(&part, noon)
		held := e
		held.Permit = event.Permit{ID: "p", At: noon}
		keys, _ := permits.Keys(&held, noon)
		for _, work := range m.Match(&e, noon) {
			for _, hit := range work.Hits {
				i := slices.IndexFunc(wants, func(w Want) bool { return w.Limit == hit.Limit })
				if hit.Amount == 0 && i < 0 {
					continue
				}
				counted++
				if !slices.ContainsFunc(keys, func(k PermitKey) bool { return string(k.Key) == string(work.Key) && k.Hash == work.Hash }) {
					t.Fatalf("seed %d: %+v counts for %s, and its permit is of %+v", seed, e, work.Key, keys)
				}
				limit := hit.Limit.threshold()
				if hit.Tier > 0 {
					limit = hit.Limit.Tiers[hit.Tier-1].Limit
				}
				if i < 0 || string(wants[i].Key) != string(work.Key) || wants[i].Hash != work.Hash || wants[i].Amount != hit.Amount ||
					wants[i].Threshold > limit || !wants[i].AnyTier && wants[i].Threshold != limit {
					t.Fatalf("seed %d: %+v counts %v for %s under %s of %v, and %+v asked for %v", seed, e, hit.Amount, work.Key, hit.Limit.Name, limit, part, describeWants(wants))
				}
			}
		}
	}
	if counted < 5000 {
		t.Errorf("%d hits", counted)
	}
}

func wantsAsHits(wants []Want) (out []string) {
	for _, w := range wants {
		out = append(out, fmt.Sprint(w.Limit.Name, string(w.Key), w.Amount, w.Threshold))
	}
	slices.Sort(out)
	return out
}

func hitsOf(works []Work) (out []string) {
	for _, w := range works {
		for _, h := range w.Hits {
			limit := h.Limit.threshold()
			if h.Tier > 0 {
				limit = h.Limit.Tiers[h.Tier-1].Limit
			}
			if h.Amount > 0 {
				out = append(out, fmt.Sprint(h.Limit.Name, string(w.Key), h.Amount, limit))
			}
		}
	}
	slices.Sort(out)
	return out
}

func TestWantsAllocateNothing(t *testing.T) {
	set := compiled(t, header+strings.TrimPrefix(strictRules, "\n"))
	strict, instance := NewRequests(set.Strict()), NewRequests(set.Instance)
	e := &event.Event{API: "tiers", UID: "probe", IP: netip.MustParseAddr("2001:db8::1"), Cost: event.One}
	none := &event.Event{API: "nothing", UID: "42", Cost: event.One}
	run := func() {
		if strict.Wants(none, 0); len(strict.Wants(e, 0)) != 2 || len(instance.Wants(e, 0)) != 2 {
			t.Fatal("no wants")
		}
	}
	run()
	if n := testrun.Allocs(1000, run); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkWants(b *testing.B) {
	set := compiled(b, header+strings.TrimPrefix(strictRules, "\n"))
	for name, e := range map[string]*event.Event{
		"none": {API: "nothing", UID: "42", Cost: event.One}, "one": {API: "sms.send", UID: "user-4711", Cost: event.One},
	} {
		b.Run(name, func(b *testing.B) {
			q := NewRequests(set.Strict())
			b.ReportAllocs()
			for b.Loop() {
				q.Wants(e, 0)
			}
		})
	}
}
