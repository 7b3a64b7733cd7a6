package instance_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/instance"
	"github.com/tallygate/tallygate/pipeline/admit/standing"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// noon is 2026-11-21T12:00:00Z.
const noon event.Micros = 1_795_262_400 * event.Second

func compiled(t testing.TB, list string) *rules.Set {
	t.Helper()
	set, err := rules.Compile("test.yaml", []byte("apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: test}\nspec:\n  rules:\n"+list))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return set
}

// bench is Limits with a clock that is set by hand.
type bench struct {
	*instance.Limits
	now event.Micros
}

func newBench(t testing.TB, list string) *bench {
	b := &bench{now: noon}
	b.Limits = instance.New(compiled(t, list), instance.Options{Now: func() event.Micros { return b.now }})
	return b
}

func request(api, uid string) *event.Event { return &event.Event{API: api, UID: uid, Cost: event.One} }

// says is a result in short.
func says(r instance.Result) string {
	text := "denied: " + r.Action.String()
	if r.Allowed {
		text = "let in"
	}
	if r.Limit != nil {
		n := r.Numbers
		text += fmt.Sprintf(", %s: %v of %v, retry %v, reset %v", r.Limit.Name, n.Remaining, n.Limit, n.RetryAfter, n.ResetAfter)
		if n.Limited == r.Allowed {
			text += ", and the opposite"
		}
	}
	if r.Shadow != nil {
		text += ", shadow " + r.Shadow.Name
	}
	return text
}

func (b *bench) expect(t *testing.T, e *event.Event, want string) *instance.Permit {
	t.Helper()
	r, permit := b.Admit(e)
	if diff := cmp.Diff(want, says(r)); diff != "" {
		t.Errorf("at %v (- want)\n%s", (b.now - noon).Duration(), diff)
	}
	return permit
}

// The numbers are those that redis-cell answers: of CL.THROTTLE key 14 30 60 1, a burst of 15 and 30 a minute.
func TestTheFiveNumbersOfABucket(t *testing.T) {
	b := newBench(t, "    - {name: cell, match: {api: x}, window: bucket, limit: 30, per: 60s, burst: 15, scope: instance}\n")
	e := request("x", "42")
	b.expect(t, e, "let in, cell: 14 of 15, retry 0s, reset 2s")
	for i := 13; i >= 0; i-- {
		b.expect(t, e, fmt.Sprintf("let in, cell: %d of 15, retry 0s, reset %v", i, time.Duration(15-i)*2*time.Second))
	}
	b.expect(t, e, "denied: block, cell: 0 of 15, retry 2s, reset 30s")
	b.now += 2*event.Second - 1
	b.expect(t, e, "denied: block, cell: 0.999999 of 15, retry 1µs, reset 28.000001s")
	b.now++
	b.expect(t, e, "let in, cell: 0 of 15, retry 0s, reset 30s")
	large := request("x", "42")
	large.Cost = 5 * event.One
	b.expect(t, large, "denied: block, cell: 0 of 15, retry 10s, reset 30s")
	large.Cost = 16 * event.One
	b.expect(t, large, fmt.Sprintf("denied: block, cell: 0 of 15, retry %v, reset 30s", standing.Never))
	b.expect(t, request("x", "43"), "let in, cell: 14 of 15, retry 0s, reset 2s")
	b.expect(t, request("y", "42"), "let in")
	b.expect(t, request("x", ""), "let in") // it has no key
}

func TestTheNumbersOfEachWindow(t *testing.T) {
	for window, wants := range map[string][2]string{ // 1 and 2 at once, then 1 more after 10 s
		"per: 1m":                                        {"retry 50s, reset 50s", "retry 0s, reset 1m0s"},
		"per: 1m, window: tumbling":                      {"retry 50s, reset 50s", "retry 0s, reset 1m0s"},
		"per: hour, window: calendar":                    {"retry 59m50s, reset 59m50s", "retry 0s, reset 1h0m0s"},
		"window: session, gap: 30s":                      {"retry 20s, reset 20s", "retry 0s, reset 30s"},
		"per: 1m, count: {sum: attrs.n}, resolution: 5s": {"retry 55s, reset 55s", "retry 0s, reset 1m5s"},
	} {
		t.Run(window, func(t *testing.T) {
			b := newBench(t, "    - {name: w, match: {api: x}, limit: 3, "+window+", scope: instance, action: throttle}\n")
			e := request("x", "42")
			e.Attrs = []event.Attr{{Name: "n", Value: event.Value{Kind: event.Number, Text: "1"}}}
			for range 3 {
				if r, _ := b.Admit(e); !r.Allowed {
					t.Fatal(says(r))
				}
			}
			b.now += 10 * event.Second
			r, _ := b.Admit(e)
			if want := "denied: throttle, w: 0 of 3, " + wants[0]; says(r) != want {
				t.Errorf("%s, want %s", says(r), want)
			}
			b.now += event.Micros(r.Numbers.RetryAfter.Microseconds()) - 1
			if r, _ := b.Admit(e); r.Allowed {
				t.Errorf("a µs before it is let in: %s", says(r))
			}
			b.now++
			b.expect(t, e, "let in, w: 2 of 3, "+wants[1])
		})
	}
}

func TestWhatIsUnderWay(t *testing.T) {
	b := newBench(t, `    - {name: at-once, key: [], match: {api: {x: 1, heavy: 2}}, window: in-flight, limit: 3, scope: instance}
    - {name: rate, match: {api: x}, limit: 5, per: 1m, scope: instance, action: challenge}
`)
	first := b.expect(t, request("x", "1"), "let in, at-once: 2 of 3, retry 0s, reset 0s")
	heavy := b.expect(t, request("heavy", "2"), "let in, at-once: 0 of 3, retry 0s, reset 0s")
	b.expect(t, request("x", "3"), "denied: block, at-once: 0 of 3, retry 0s, reset 0s")
	first.Done()
	first.Done() // only once
	b.expect(t, request("heavy", "3"), "denied: block, at-once: 1 of 3, retry 0s, reset 0s")
	heavy.Done()
	for range 4 {
		r, permit := b.Admit(request("x", "1"))
		if !r.Allowed {
			t.Fatal(says(r))
		}
		permit.Done()
	}
	if b.expect(t, request("x", "1"), "denied: challenge, rate: 0 of 5, retry 1m0s, reset 1m0s") != nil {
		t.Error("who is denied has a permit")
	}
	var none *instance.Permit
	none.Done()
	huge := request("x", "9")
	huge.Cost = 4 * event.One
	b.expect(t, huge, fmt.Sprintf("denied: block, at-once: 3 of 3, retry %v, reset 0s", standing.Never))
	want := []instance.Stat{{Admitted: 6, Denied: 3, Keys: 1}, {Admitted: 5, Denied: 1, Keys: 1}}
	for i, s := range b.Stats() {
		if s.Limit = nil; s != want[i] {
			t.Errorf("%d: %+v, want %+v", i, s, want[i])
		}
	}
}

// A request counts under all rules that are for it, or under none of them.
func TestAllOrNone(t *testing.T) {
	b := newBench(t, `    - {name: a, match: {api: x}, limit: 10, per: 1m, scope: instance, action: throttle}
    - {name: b, key: ip, match: {api: x}, limit: 1, per: 1m, scope: instance}
    - {name: c, key: api, match: {api: x}, window: in-flight, limit: 10, scope: instance}
`)
	e := request("x", "42")
	e.IP = netip.MustParseAddr("192.0.2.1")
	permit := b.expect(t, e, "let in, b: 0 of 1, retry 0s, reset 1m0s")
	for range 20 {
		b.expect(t, e, "denied: block, b: 0 of 1, retry 1m0s, reset 1m0s")
	}
	e.IP = netip.MustParseAddr("192.0.2.2")
	b.expect(t, e, "let in, b: 0 of 1, retry 0s, reset 1m0s").Done()
	permit.Done()
	e.IP = netip.Addr{}
	b.expect(t, e, "let in, a: 7 of 10, retry 0s, reset 1m0s")
}

// Of several rules that deny, the strongest action is what the request meets.
func TestTheStrongestActionDecides(t *testing.T) {
	b := newBench(t, `    - {name: a, match: {api: x}, limit: 1, per: 1m, scope: instance}
    - {name: b, match: {api: x}, limit: 1, per: 2m, scope: instance, action: throttle}
`)
	b.Admit(request("x", "42"))
	b.expect(t, request("x", "42"), "denied: block, b: 0 of 1, retry 2m0s, reset 2m0s")
	b.now += event.Minute
	b.expect(t, request("x", "42"), "denied: throttle, b: 0 of 1, retry 1m0s, reset 1m0s")
}

// Where nothing is denied any number may be under way, and all of it is given back.
func TestAnyNumberUnderWay(t *testing.T) {
	b := newBench(t, "    - {name: a, match: {api: x}, window: in-flight, limit: 1, scope: instance, exempt: [{uid: probe, reason: ours}]}\n")
	huge := request("x", "probe")
	huge.Cost = event.MaxDecimal - event.MaxDecimal%event.One
	var permits []*instance.Permit
	for range 2 {
		permits = append(permits, b.expect(t, huge, "let in"))
	}
	b.Load(compiled(t, "    - {name: a, match: {api: x}, window: in-flight, limit: 1, scope: instance}\n"))
	b.expect(t, request("x", "probe"), "denied: block, a: 0 of 1, retry 0s, reset 0s")
	for _, p := range permits {
		p.Done()
	}
	b.expect(t, request("x", "probe"), "let in, a: 0 of 1, retry 0s, reset 0s")
	b.expect(t, request("x", "probe"), "denied: block, a: 0 of 1, retry 0s, reset 0s")
}

func TestTiersExemptionsAndShadow(t *testing.T) {
	b := newBench(t, `    - name: plan
      match: {api: x}
      limit: 2
      per: 1m
      tiers: [{when: attrs.plan == "pro", limit: 4}, {when: attrs.plan == "own", unlimited: true}]
      exempt: [{uid: probe, reason: ours}]
      scope: instance
    - {name: shadow, match: {api: x}, limit: 1, per: 1m, scope: instance, mode: shadow}
`)
	with := func(uid, plan string) *event.Event {
		e := request("x", uid)
		e.Attrs = []event.Attr{{Name: "plan", Value: event.Value{Text: plan}}}
		return e
	}
	b.expect(t, with("1", "free"), "let in, plan: 1 of 2, retry 0s, reset 1m0s")
	b.expect(t, with("1", "free"), "let in, plan: 0 of 2, retry 0s, reset 1m0s, shadow shadow")
	b.expect(t, with("1", "free"), "denied: block, plan: 0 of 2, retry 1m0s, reset 1m0s, shadow shadow")
	b.expect(t, with("1", "pro"), "let in, plan: 1 of 4, retry 0s, reset 1m0s, shadow shadow")
	for range 10 {
		b.expect(t, with("1", "own"), "let in, shadow shadow")
	}
	b.expect(t, with("1", "pro"), "denied: block, plan: 0 of 4, retry 1m0s, reset 1m0s, shadow shadow")
	b.expect(t, with("probe", "free"), "let in")
	for range 10 {
		b.expect(t, with("probe", "free"), "let in, shadow shadow")
	}
	b.now += event.Minute
	b.expect(t, with("1", "free"), "let in, plan: 1 of 2, retry 0s, reset 1m0s")
}

// A limit of 0 lets nothing in, and nobody can say when it will.
func TestSentencesLimitZeroRefusesTheFirst(t *testing.T) {
	never := standing.Never.String()
	b := newBench(t, `    - {name: plan, match: {api: x}, limit: 0, per: 1m, tiers: [{when: attrs.plan == "pro", limit: 1}], scope: instance}
    - {name: at-once, match: {api: y}, window: in-flight, limit: 0, scope: instance}
`)
	pro := request("x", "1")
	pro.Attrs = []event.Attr{{Name: "plan", Value: event.Value{Text: "pro"}}}
	b.expect(t, request("x", "1"), "denied: block, plan: 0 of 0, retry "+never+", reset 0s")
	b.expect(t, pro, "let in, plan: 0 of 1, retry 0s, reset 1m0s")
	b.expect(t, request("x", "1"), "denied: block, plan: 0 of 0, retry "+never+", reset 1m0s")
	b.expect(t, request("y", "1"), "denied: block, at-once: 0 of 0, retry "+never+", reset 0s")
}

// Changed rules go on with the counters of limits that have the same name, window, key and count.
func TestChangedRulesKeepCounters(t *testing.T) {
	const under = "    - {name: at-once, key: [], match: {api: x}, window: in-flight, limit: 2, scope: instance}\n"
	const rate = "    - {name: rate, match: {api: x}, window: bucket, limit: 60, per: 60s, burst: 3, scope: instance}\n"
	b := newBench(t, under+rate)
	b.expect(t, request("x", "1"), "let in, at-once: 1 of 2, retry 0s, reset 0s").Done()
	held := b.expect(t, request("x", "1"), "let in, at-once: 1 of 2, retry 0s, reset 0s")
	b.Load(compiled(t, "    - {name: rate, match: {api: x}, window: bucket, limit: 30, per: 60s, burst: 4, scope: instance, action: throttle, keys: 5}\n"+
		"    - {name: other, match: {api: x}, limit: 9, per: 1m, scope: instance}\n"+under))
	b.expect(t, request("x", "1"), "let in, at-once: 0 of 2, retry 0s, reset 0s").Done()
	held.Done()
	b.expect(t, request("x", "1"), "let in, rate: 0 of 4, retry 0s, reset 8s") // tables are locked in their own order
	b.Load(compiled(t, "    - {name: rate, match: {api: x}, limit: 30, per: 60s, scope: instance}\n"))
	b.expect(t, request("x", "1"), "let in, rate: 29 of 30, retry 0s, reset 1m0s")
	b.Load(rules.None())
	b.expect(t, request("x", "1"), "let in")
}

// A limit that crosses 64, or gets a tier that does, is the same one: its times become panes, and times again.
func TestALimitAcross64KeepsCounters(t *testing.T) {
	const rule = "    - {name: a, match: {api: x}, limit: %d, per: 1m, scope: instance%s}\n"
	limit := func(n int, more string) *rules.Set { return compiled(t, fmt.Sprintf(rule, n, more)) }
	b := newBench(t, fmt.Sprintf(rule, 100, ""))
	take := func(most int) (n int) {
		for n < most {
			if r, _ := b.Admit(request("x", "1")); !r.Allowed {
				break
			}
			n++
		}
		return n
	}
	sum := take(60)
	for _, c := range []struct {
		set  *rules.Set
		most int
	}{{limit(70, ""), 70}, {limit(64, ""), 70}, {limit(72, ""), 72}, {limit(64, ", tiers: [{when: 'attrs.plan == \"pro\"', limit: 80}]"), 72}, {limit(64, ""), 72}, {limit(80, ""), 80}} {
		b.now += event.Millisecond
		b.Load(c.set)
		if sum += take(1000); sum != c.most {
			t.Errorf("%d were let in within a minute, want %d", sum, c.most)
		}
	}
	b.Load(limit(64, ""))
	b.now += 2 * event.Minute
	if n := take(1000); n != 64 {
		t.Errorf("two minutes later %d, want 64", n)
	}
}

// What a crowd held leaves with it, and not with the next request, which would wait for that.
func TestNothingIsLeftOfACrowd(t *testing.T) {
	b := newBench(t, "    - {name: held, match: {api: x}, window: in-flight, limit: 1, scope: instance, keys: 2}\n")
	var permits []*instance.Permit
	for i := range 100 {
		_, permit := b.Admit(request("x", fmt.Sprint(i)))
		permits = append(permits, permit)
	}
	for i, p := range permits {
		p.Done()
		if s, want := b.Stats()[0], max(99-i, 2); s.Keys != want {
			t.Fatalf("%d keys after %d are done, want %d", s.Keys, i+1, want)
		}
	}
}

// Who emits an event need not say that its cost is 1.
func TestARequestWithoutACost(t *testing.T) {
	b := newBench(t, "    - {name: w, match: {api: {x: 2}}, limit: 3, per: 1m, scope: instance}\n")
	e := &event.Event{API: "x", UID: "42"}
	b.expect(t, e, "let in, w: 1 of 3, retry 0s, reset 1m0s")
	b.expect(t, e, "denied: block, w: 1 of 3, retry 1m0s, reset 1m0s")
	if e.Cost != 0 {
		t.Errorf("the caller's event was changed: it costs %v", e.Cost)
	}
}

func TestTheLeastRecentlyUsedKeysLeave(t *testing.T) {
	b := newBench(t, `    - {name: few, match: {api: x}, limit: 1, per: 1h, scope: instance, keys: 3}
    - {name: held, match: {api: y}, window: in-flight, limit: 1, scope: instance, keys: 2}
`)
	allowed := func(uid string, want bool) {
		t.Helper()
		b.now += event.Millisecond
		if r, _ := b.Admit(request("x", uid)); r.Allowed != want {
			t.Errorf("%s: %s", uid, says(r))
		}
	}
	for _, uid := range []string{"1", "2", "3"} {
		allowed(uid, true)
	}
	allowed("1", false)
	allowed("4", true) // 2 leaves
	allowed("1", false)
	allowed("3", false)
	allowed("2", true) // 4 leaves
	allowed("3", false)
	var permits []*instance.Permit
	for _, uid := range []string{"1", "2", "3", "4"} {
		_, permit := b.Admit(request("y", uid))
		permits = append(permits, permit)
	}
	for _, uid := range []string{"1", "2", "3", "4"} {
		if r, _ := b.Admit(request("y", uid)); r.Allowed {
			t.Errorf("%s left, and has something under way", uid)
		}
	}
	for _, p := range permits {
		p.Done()
	}
	b.now += event.Millisecond
	b.Admit(request("y", "5"))
	if s := b.Stats(); s[0].Keys != 3 || s[0].Evicted != 2 || s[1].Keys != 2 || s[1].Evicted != 3 {
		t.Errorf("%+v", s)
	}
	b.Load(compiled(t, "    - {name: few, match: {api: x}, limit: 1, per: 1h, scope: instance, keys: 1}\n"))
	if s := b.Stats(); s[0].Keys != 1 {
		t.Errorf("%+v", s)
	}
	allowed("3", false) // the last one that was used
}

// A clock that goes back lets nobody in sooner, and breaks nothing.
func TestAClockThatGoesBack(t *testing.T) {
	b := newBench(t, `    - {name: a, match: {api: x}, limit: 2, per: 1m, scope: instance}
    - {name: b, match: {api: x}, window: bucket, limit: 2, per: 1m, warm_up: {time: 1h, from: 50%}, scope: instance}
`)
	b.expect(t, request("x", "1"), "let in, b: 0 of 1, retry 0s, reset 59.508164s")
	b.now -= event.Hour
	r, _ := b.Admit(request("x", "1"))
	if r.Allowed || r.Numbers.RetryAfter < 59*time.Second || r.Numbers.RetryAfter > time.Minute {
		t.Error(says(r))
	}
	c := newBench(t, "    - {name: c, match: {api: x}, window: tumbling, limit: 2, per: 1m, scope: instance}\n")
	c.Admit(request("x", "1"))
	c.now -= event.Hour
	for i, want := range []bool{true, false, false} {
		if r, _ := c.Admit(request("x", "1")); r.Allowed != want {
			t.Errorf("%d after an hour back: %s", i, says(r))
		}
		c.now += event.Minute
	}
	b.now += event.Hour + event.Minute
	if r, _ := b.Admit(request("x", "1")); !r.Allowed || r.Action != verdict.ActLog {
		t.Error(says(r))
	}
}
