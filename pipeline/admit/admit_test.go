package admit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

const twoRules = `    - {name: daily, match: {api: sms.send}, limit: 5, per: day, window: calendar, timezone: Europe/Berlin, strict: true}
    - {name: by-item, key: attrs.item, match: {api: sms.send}, limit: 3, per: 1h, strict: true}
    - {name: exports, match: {api: export}, window: in-flight, limit: 2, strict: {hold: 1m, lost: return}}
    - {name: bucket, match: {api: bucket}, window: bucket, limit: 10, per: 1h, burst: 4, strict: true}
    - {name: both, match: {api: both}, limit: 9, per: 1h, strict: true}
    - {name: both-at-once, match: {api: both}, window: in-flight, limit: 1, strict: {hold: 1m, lost: return}}
    - {name: here, match: {api: here}, window: in-flight, limit: 1, scope: instance}
`

func TestPermitsUpToTheLimit(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.rules(1, twoRules)
		a := r.admitter()
		began := time.Now().Truncate(time.Millisecond)
		for i := range 5 {
			p := r.admit(a, uid("sms.send", "42"))
			if at := p.Event.At.Time(); !p.Admitted || p.ID == "" || p.Event.ID != p.ID || len(p.Event.Keys) > 0 || at.Before(began) || at.After(time.Now()) {
				t.Fatalf("%d: %+v", i, p)
			}
			if p.By.Rule.Name != "daily" || p.Key != "uid=42" || p.Numbers.Limit != 5*event.One || p.Numbers.Remaining != event.Decimal(4-i)*event.One || p.Numbers.ResetAfter <= 0 {
				t.Errorf("%d: %+v %+v", i, p.By, p.Numbers)
			}
			p.Done("success")
			p.Cancel() // behind Done it does nothing
		}
		p := r.admit(a, uid("sms.send", "42"))
		if p.Admitted || p.InDoubt || !p.Numbers.Limited || p.Numbers.RetryAfter <= 0 || p.Numbers.RetryAfter > 25*time.Hour || p.By.Rule.Name != "daily" {
			t.Errorf("above the limit: %+v", p)
		}
		if p := r.admit(a, uid("sms.send", "43")); !p.Admitted {
			t.Errorf("another key: %+v", p)
		}
		if p := r.admit(a, uid("other", "42")); !p.Admitted || p.ID != "" {
			t.Errorf("what no rule is for: %+v", p)
		}
		q := uid("bucket", "42")
		q.Cost = 5 * event.One
		if p := r.admit(a, q); p.Admitted || p.Numbers.RetryAfter != Never {
			t.Errorf("more than the limit at once: %+v", p)
		}
	})
}

// A limit of 0 refuses the first request, and says of no time that it helps to wait for it. One with a tier of its own,
// or without a limit, is granted.
func TestSentencesStrictLimitZeroRefusesTheFirst(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.rules(1, `
  - {name: shut, match: {api: sms.send}, limit: 0, per: day, window: calendar, strict: true, tiers: [{when: attrs.plan == "pro", limit: 1}, {when: attrs.plan == "own", unlimited: true}]}
`)
		a := r.admitter()
		plan := func(name string) Request {
			q := uid("sms.send", "42")
			q.Attrs = []event.Attr{{Name: "plan", Value: event.Value{Text: name}}}
			return q
		}
		for _, name := range []string{"free", "pro", "pro", "own", "own", "free"} {
			p := r.admit(a, plan(name))
			switch {
			case name == "free" && (p.Admitted || p.InDoubt || p.Numbers.Limit != 0 || p.Numbers.Remaining != 0 || p.Numbers.RetryAfter != Never):
				t.Errorf("%s: %+v", name, p)
			case name == "own" && !p.Admitted:
				t.Errorf("%s: %+v", name, p)
			}
		}
	})
}

// Both keys are of different partitions and shards.
func TestAllKeysOrNone(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.rules(1, twoRules)
		a := r.admitter()
		item := event.Dim{Name: "attrs.item", Value: "1"}
		for i := range 3 {
			p := r.admit(a, uid("sms.send", fmt.Sprint(i), item))
			want := event.Permit{ID: p.ID, At: p.Event.At, Keys: p.Event.Keys}
			if !p.Admitted || len(p.Event.Keys) != 2 || p.Event.Keys[0].Key != "attrs.item=1" || p.Event.Keys[1].Key != fmt.Sprint("uid=", i) {
				t.Fatalf("%d: %+v", i, p)
			}
			if diff := cmp.Diff(want, p.Event); diff != "" {
				t.Error(diff)
			}
		}
		for range 10 { // the first key's permits are given back
			if p := r.admit(a, uid("sms.send", "7", item)); p.Admitted || p.Key != "attrs.item=1" {
				t.Fatalf("%+v", p)
			}
		}
		used := 0
		for range 5 {
			if r.admit(a, uid("sms.send", "8")).Admitted {
				used++
			}
		}
		for i := range uint64(5) {
			if p := r.admit(a, uid("sms.send", "8", event.Dim{Name: "attrs.item", Value: "2"})); p.Admitted || p.Key != "uid=8" {
				t.Fatalf("%+v", p)
			}
			testrun.Eventually(t, "what was granted of a denied request is given back", func() bool { return a.Stats().Cancelled == i+1 })
		}
		for i := range 3 {
			if p := r.admit(a, uid("sms.send", "9", event.Dim{Name: "attrs.item", Value: "2"})); !p.Admitted {
				t.Fatalf("%d: %+v", i, p)
			}
		}
		if used != 5 {
			t.Errorf("%d of 5", used)
		}
	})
}

func TestCancelledAndUnderWay(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.rules(1, twoRules)
		a := r.admitter()
		for range 20 {
			p := r.admit(a, uid("sms.send", "42"))
			if !p.Admitted {
				t.Fatalf("%+v", p)
			}
			p.Cancel()
			p.Cancel()
			p.Done("")
			testrun.Eventually(t, "it is given back", func() bool { s := a.Stats(); return s.CancelsWaiting == 0 && s.Cancelled == s.Admitted })
		}
		one, two := r.admit(a, uid("export", "42")), r.admit(a, uid("export", "42"))
		if three := r.admit(a, uid("export", "42")); !one.Admitted || !two.Admitted || three.Admitted || one.Event.ID != "" {
			t.Fatalf("%+v %+v %+v", one, two, three)
		}
		one.Done("success")
		testrun.Eventually(t, "there is room again", func() bool { return r.admit(a, uid("export", "42")).Admitted })

		// What is under way ends with the action, what is counted with its event.
		for i := range 9 {
			testrun.Eventually(t, fmt.Sprint("there is room for action ", i), func() bool {
				p := r.admit(a, uid("both", "42"))
				if p.Admitted {
					p.Done("success")
				}
				return p.Admitted
			})
		}
		testrun.Eventually(t, "all are done", func() bool { return a.Stats().CancelsWaiting == 0 })
		if p := r.admit(a, uid("both", "42")); p.Admitted || p.By.Rule.Name != "both" {
			t.Errorf("%+v", p)
		}
		here := r.admit(a, uid("here", "42"))
		if again := r.admit(a, uid("here", "42")); !here.Admitted || again.Admitted || again.By.Rule.Name != "here" {
			t.Errorf("%+v %+v", here, again)
		}
		here.Done("success")
		if again := r.admit(a, uid("here", "42")); !again.Admitted {
			t.Errorf("%+v", again)
		}
	})
}

func TestTheSameIDIsTheSamePermit(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.rules(1, twoRules)
		a, b := r.admitter(), r.admitter()
		q := uid("sms.send", "42")
		q.ID = "order-1"
		first := r.admit(a, q)
		for _, again := range []*Permit{r.admit(a, q), r.admit(b, q)} {
			if !again.Admitted || again.ID != "order-1" || again.Event.At != first.Event.At {
				t.Fatalf("%+v, first %+v", again, first)
			}
		}
		q.ID = ""
		for i := range 4 {
			if !r.admit(b, q).Admitted {
				t.Fatal(i)
			}
		}
		if r.admit(b, q).Admitted {
			t.Error("one too many")
		}
		q.ID = string(make([]byte, event.MaxID))
		if _, err := a.Admit(t.Context(), q); !errors.Is(err, ErrRequest) {
			t.Errorf("a long id: %v", err)
		}
	})
}

func TestOtherRules(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		const rule = "    - {name: a, match: {api: x}, limit: %d, per: 1h, strict: true}\n"
		r.rules(1, fmt.Sprintf(rule, 1))
		a := r.admitter(func(c *Config) { c.Poll = time.Hour })
		if one, two := r.admit(a, uid("x", "1")), r.admit(a, uid("x", "1")); !one.Admitted || two.Admitted {
			t.Fatal(one, two)
		}
		r.rules(2, fmt.Sprintf(rule, 3)) // it hears it by asking
		if two, three, four := r.admit(a, uid("x", "1")), r.admit(a, uid("x", "1")), r.admit(a, uid("x", "1")); !two.Admitted || !three.Admitted || four.Admitted {
			t.Fatal(two, three, four)
		}
		if v := a.Stats().Version; v != 2 {
			t.Errorf("version %d", v)
		}
		// Partitions are on different versions: each key goes by its own.
		r.put(3, fmt.Sprintf(rule, 5))
		partition := func(uid string) int32 { return int32(event.Murmur2(uid)&0x7fffffff) % rigPartitions }
		r.follow(partition("1"), 3)
		other := "2"
		for partition(other) == partition("1") {
			other += "2"
		}
		b := r.admitter() // it begins with version 3
		for uidOf, want := range map[string]int{"1": 2, other: 3} {
			admitted := 0
			for range 10 {
				if r.admit(b, uid("x", uidOf)).Admitted {
					admitted++
				}
			}
			if admitted != want {
				t.Errorf("uid %s: %d were admitted, want %d", uidOf, admitted, want)
			}
		}
		// A version that Redis does not have, or that does not compile, is in doubt.
		r.apply(partition("1"), protocol.Record{Version: 4})
		if p := r.admit(b, uid("x", "1")); p.Admitted || !p.InDoubt {
			t.Errorf("%+v", p)
		}
		r.put(4, "    - {name: a, match: {api: x}, nonsense: 5}\n")
		if p := r.admit(b, uid("x", "1")); p.Admitted || !p.InDoubt {
			t.Errorf("%+v", p)
		}
	})
}

// Rules that did not ask learn that they do now.
func TestARuleBecomesStrict(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		const rule = "    - {name: a, match: {api: x}, limit: 2, per: 1h, %s}\n"
		r.rules(1, fmt.Sprintf(rule, "then: {block: 1m}"))
		a := r.admitter()
		if p := r.admit(a, uid("x", "1")); p != &a.free {
			t.Errorf("%+v", p)
		}
		r.rules(2, fmt.Sprintf(rule, "strict: true"))
		testrun.Eventually(t, "a permit is asked for", func() bool { return r.admit(a, uid("x", "1")).ID != "" })
		r.rules(3, fmt.Sprintf(rule, "then: {block: 1m}"))
		testrun.Eventually(t, "none is asked for", func() bool { return r.admit(a, uid("x", "1")) == &a.free })
	})
}

const crowdRules = `    - {name: plain, match: {api: plain}, limit: 60, per: 1h, strict: true}
    - {name: ahead, match: {api: ahead}, limit: %d, per: 1h, strict: {hold: 30s, ahead: 1s}}
    - {name: at-once, match: {api: at-once}, window: in-flight, limit: 3, strict: {hold: 1m, lost: return}}
`

// A crowd in several processes never gets one too many, and in the end all.
func TestACrowdGetsTheWholeLimitAndNoMore(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		rounds, limit := 40, int64(400)
		if r.inMemory { // it runs scripts slowly
			rounds, limit = 10, 40
		}
		r.rules(1, fmt.Sprintf(crowdRules, limit))
		crowd := []*Admitter{r.admitter(), r.admitter(), r.admitter()}
		var plain, ahead, now atomic.Int64
		var running sync.WaitGroup
		for i := range 12 {
			a := crowd[i%3]
			running.Go(func() {
				for range rounds {
					if p := r.admit(a, uid("plain", "42")); p.Admitted {
						plain.Add(1)
					}
					if p := r.admit(a, uid("ahead", "42")); p.Admitted {
						ahead.Add(1)
					}
					if p := r.admit(a, uid("at-once", "42")); p.Admitted {
						if n := now.Add(1); n > 3 {
							t.Errorf("%d at once", n)
						}
						now.Add(-1)
						p.Done("success")
					}
				}
			})
		}
		running.Wait()
		testrun.Eventually(t, "what was asked for ahead and not used can be used", func() bool {
			if p := r.admit(crowd[0], uid("ahead", "42")); p.Admitted {
				ahead.Add(1)
			}
			return ahead.Load() >= limit
		})
		for range 20 {
			if r.admit(crowd[1], uid("ahead", "42")).Admitted {
				t.Fatal("one too many")
			}
		}
		without := uint64(0)
		for _, a := range crowd {
			without += a.Stats().Ahead
		}
		if plain.Load() != 60 || ahead.Load() != limit || without < 5 {
			t.Errorf("%d of 60, %d of %d, of which %d without a question", plain.Load(), ahead.Load(), limit, without)
		}
	})
}

func TestInDoubt(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		const rules = `    - {name: shut, match: {api: shut}, limit: 8, per: 1h, strict: true}
    - {name: open, match: {api: open}, limit: 8, per: 1h, strict: true}
    - {name: share, match: {api: share}, limit: 8, per: 1h, strict: true}
    - {name: share-at-once, match: {api: at-once}, window: in-flight, limit: 8, strict: true}
    - {name: sum, match: {api: sum}, count: {sum: attrs.n}, limit: 8, per: 1h, strict: true}
`
		r.put(1, rules) // no partition grants
		a := r.admitter(func(c *Config) {
			c.OnDoubtOf = map[string]OnDoubt{"open": Open, "share": Local, "share-at-once": Local}
			c.Enforcers = 4
		})
		if p := r.admit(a, uid("shut", "1")); p.Admitted || !p.InDoubt || p.Numbers.RetryAfter != time.Second || p.Reason == "" || p.By.Rule.Name != "shut" {
			t.Errorf("closed: %+v", p)
		}
		for range 20 {
			if p := r.admit(a, uid("open", "1")); !p.Admitted || !p.InDoubt || p.Event.ID != "" {
				t.Fatalf("open: %+v", p)
			}
		}
		for i := range 5 {
			if p := r.admit(a, uid("share", "1")); p.Admitted != (i < 2) || !p.InDoubt {
				t.Errorf("share %d: %+v", i, p)
			}
		}
		one, two := r.admit(a, uid("at-once", "1")), r.admit(a, uid("at-once", "1"))
		if three := r.admit(a, uid("at-once", "1")); !one.Admitted || !two.Admitted || three.Admitted {
			t.Errorf("%+v %+v %+v", one, two, three)
		}
		two.Done("success")
		if three := r.admit(a, uid("at-once", "1")); !three.Admitted {
			t.Errorf("%+v", three)
		}
		if p := r.admit(a, uid("sum", "1")); p.Admitted || p.InDoubt || p.By.Rule.Name != "sum" {
			t.Errorf("an amount that is not known: %+v", p)
		}
		for p := range int32(rigPartitions) {
			r.follow(p, 1)
		}
		for _, api := range []string{"shut", "open", "share"} {
			if p := r.admit(a, uid(api, "1")); !p.Admitted || p.InDoubt || p.ID == "" {
				t.Errorf("%s, when all is well again: %+v", api, p)
			}
		}
	})
}

func TestBeforeTheRulesAreKnown(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: servers.FreeAddr(t), MaxRetries: -1})
	defer client.Close()
	for on, admitted := range map[OnDoubt]bool{Closed: false, Open: true, Local: true} {
		a, err := New(Config{Redis: client, OnDoubt: on})
		if err != nil {
			t.Fatal(err)
		}
		p, err := a.Admit(t.Context(), uid("x", "1"))
		if err != nil || p.Admitted != admitted || !p.InDoubt {
			t.Errorf("%d: %+v, %v", on, p, err)
		}
	}
}

func TestACutOffRedis(t *testing.T) {
	r := newRig(t, servers.StartRedis(t).Addr())
	r.rules(1, twoRules)
	network := servers.NewNetwork(t)
	client := redis.NewClient(&redis.Options{Addr: r.addr, MaxRetries: -1, Dialer: network.Dial, ReadTimeout: 3 * time.Second})
	t.Cleanup(func() { client.Close() })
	a := r.admitterOn(client)
	held := r.admit(a, uid("export", "42"))
	two := r.admit(a, uid("export", "42"))
	if !held.Admitted || !two.Admitted {
		t.Fatal(held, two)
	}
	network.Stall()
	began := time.Now()
	if p := r.admit(a, uid("export", "42")); p.Admitted || !p.InDoubt {
		t.Errorf("%+v", p)
	}
	if took := time.Since(began); took < time.Second { // and it comes
		t.Errorf("the answer took %v", took)
	}
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if p, err := a.Admit(ctx, uid("export", "42")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", p, err)
	}
	held.Done("success")
	two.Cancel()
	network.Heal()
	testrun.Eventually(t, "what was given back while Redis was away is given back", func() bool {
		s := a.Stats()
		return s.CancelsWaiting == 0 && s.Cancelled >= 4
	})
	if one, two := r.admit(a, uid("export", "42")), r.admit(a, uid("export", "42")); !one.Admitted || !two.Admitted {
		t.Errorf("%+v %+v", one, two)
	}
}

func TestTooManyCancels(t *testing.T) {
	var c cancels
	c.init()
	for range maxCancels + 7 {
		c.add(0, "k", "id")
	}
	if _, lost, waiting := c.stats(); lost != 7 || waiting != maxCancels {
		t.Errorf("%d lost, %d wait", lost, waiting)
	}
}

func TestThrottledRequestsWait(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.rules(1, "    - {name: a, match: {api: x}, window: bucket, limit: 20, per: 1s, burst: 1, strict: true, action: throttle}\n")
		a := r.admitter(func(c *Config) { c.MaxDelay = 10 * time.Second })
		began := time.Now()
		var running sync.WaitGroup
		for range 6 {
			running.Go(func() {
				if p := r.admit(a, uid("x", "1")); !p.Admitted {
					t.Errorf("%+v", p)
				}
			})
		}
		running.Wait()
		if took := time.Since(began); took < 240*time.Millisecond {
			t.Errorf("six at 20 a second took %v", took)
		}
		b := r.admitter(func(c *Config) { c.MaxDelay = -1 })
		admitted := 0
		began = time.Now()
		for range 5 {
			if r.admit(b, uid("x", "1")).Admitted {
				admitted++
			}
		}
		if took := time.Since(began); admitted > 2+int(took*20/time.Second) { // asking may take long
			t.Errorf("%d of 5 were admitted at once, in %v", admitted, took)
		}
		patient := uid("x", "1") // of a process whose others do not wait
		patient.MaxDelay = 10 * time.Second
		if p := r.admit(b, patient); !p.Admitted {
			t.Errorf("it may wait: %+v", p)
		}
	})
}

type sent []event.Event

// Emit leaves out what a denial tells.
func (s *sent) Emit(e event.Event) bool {
	if e.Outcome != event.OutcomeLimited {
		*s = append(*s, e)
	}
	return true
}

func TestDoneEmits(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.rules(1, twoRules)
		var events sent
		a := r.admitter(func(c *Config) { c.Events = &events })
		p := r.admit(a, uid("sms.send", "42"))
		p.Done("success")
		p.Done("success")
		r.admit(a, uid("other", "43")).Done("failure")
		r.admit(a, uid("sms.send", "42")).Cancel()
		if len(events) != 2 || events[0].Permit.ID != p.ID || events[0].Permit.At != p.Event.At || events[0].UID != "42" || events[0].Outcome != "success" ||
			events[0].Cost != event.One || events[1].Permit.ID != "" || events[1].UID != "43" || events[0].Validate() != nil {
			t.Errorf("%+v", events)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	for i, c := range []Config{{}, {Redis: client, Prefix: "a{b}"}, {Redis: client, Enforcers: -1}, {Redis: client, OnDoubt: 7}, {Redis: client, Poll: -1}} {
		if _, err := New(c); err == nil {
			t.Errorf("%d: no error", i)
		}
	}
}
