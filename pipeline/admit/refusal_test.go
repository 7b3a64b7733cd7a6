package admit

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

// forEachAnswer runs a test with each answer for the time in doubt: what a caller can bring about must not
// depend on it. With Open 100 of 100 got in by an id that had ended.
func forEachAnswer(t *testing.T, source string, test func(*testing.T, *rig, *Admitter)) {
	for on := Closed; on <= Local; on++ {
		t.Run(on.String(), func(t *testing.T) {
			onEach(t, func(t *testing.T, r *rig) {
				r.rules(1, source)
				test(t, r, r.admitter(func(c *Config) { c.OnDoubt = on }))
			})
		})
	}
}

func named(id, api string, more ...event.Dim) Request {
	q := uid(api, "42", more...)
	q.ID = id
	return q
}

// wantRefused fails unless a request is denied for what it asks.
func wantRefused(t *testing.T, what string, p *Permit, says string) {
	t.Helper()
	if p.Admitted || p.InDoubt || p.By == nil || !p.Numbers.Limited || !strings.Contains(p.Reason, says) {
		t.Errorf("%s: %+v, want a denial that says %q", what, p, says)
	}
	if d := p.Admission().Decision; d.Allowed || d.Unavailable() || d.Rule() == "" || d.RetryAfter() <= 0 {
		t.Errorf("%s: a middleware answers %+v", what, d)
	}
}

func TestAnIDThatHasEnded(t *testing.T) {
	forEachAnswer(t, twoRules, func(t *testing.T, r *rig, a *Admitter) {
		r.admit(a, named("given-back", "sms.send")).Cancel()
		testrun.Eventually(t, "it is given back", func() bool { return a.Stats().Cancelled == 1 })
		for range 5 {
			p := r.admit(a, named("given-back", "sms.send"))
			wantRefused(t, "an id that was given back", p, "has ended")
			if after := p.Numbers.RetryAfter; after <= 0 || after > 6*time.Second {
				t.Errorf("it may be asked for again after %v", after)
			}
		}
		if s := a.Stats(); s.Refused.Ended != 5 || s.InDoubt != 0 || s.Denied != 5 {
			t.Errorf("%+v", s)
		}
	})
}

// settle counts an action's event as its owner does: the key's level has it, and settles the permit.
func (r *rig) settle(p *Permit, seq int64, counted int) {
	r.t.Helper()
	v := p.a.book.current.Load().newest
	for l, of := range v.limits {
		if l.Rule.Name == p.By.Rule.Name {
			now := event.FromTime(time.Now())
			level := &protocol.Level{Key: p.first.key, Seq: seq, Latest: p.Event.At, Settles: []string{p.ID}}
			level.Sections = []protocol.Section{{Name: of.Shape.Name, Steps: []protocol.Step{{Until: now + event.Hour, Amount: event.Decimal(counted) * event.One}}}}
			r.apply(p.first.partition, protocol.Record{Level: level})
		}
	}
}

// An id got another permit each time its event was counted. To the owner the events of these were repeats,
// so 14 actions went through under a limit of 5.
func TestAnIDWhoseActionWasCounted(t *testing.T) {
	forEachAnswer(t, "    - {name: few, match: {api: x}, limit: 5, per: 1d, strict: true}\n", func(t *testing.T, r *rig, a *Admitter) {
		first := r.admit(a, named("order-1", "x"))
		if again := r.admit(a, named("order-1", "x")); !first.Admitted || !again.Admitted || again.Event.At != first.Event.At {
			t.Fatalf("%+v %+v", first, again)
		}
		r.settle(first, 1, 1)
		for range 14 {
			p := r.admit(a, named("order-1", "x"))
			wantRefused(t, "an id whose action was counted", p, "has ended")
			if p.Numbers.RetryAfter != Never {
				t.Errorf("it may be asked for again after %v", p.Numbers.RetryAfter)
			}
		}
		for i := range 4 {
			if p := r.admit(a, named(fmt.Sprint("other", i), "x")); !p.Admitted {
				t.Errorf("another one: %+v", p)
			}
		}
		if p := r.admit(a, named("one-too-many", "x")); p.Admitted || p.Reason != "" {
			t.Errorf("%+v", p)
		}
		if s := a.Stats().Refused; s.Ended != 14 || s.Taken+s.Uncountable != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// The id that an answer names is the caller's from then on: as long as the permit is held it renews it, and
// then it is refused.
func TestAnIDOfAnAnswerWhoseActionWasCounted(t *testing.T) {
	forEachAnswer(t, "    - {name: few, match: {api: x}, limit: 5, per: 1d, strict: true}\n", func(t *testing.T, r *rig, a *Admitter) {
		first := r.admit(a, uid("x", "42"))
		id := first.RequestID()
		if again := r.admit(a, named(id, "x")); !again.Admitted || again.Event.At != first.Event.At || again.RequestID() != id {
			t.Fatalf("%+v %+v", first, again)
		}
		other := r.admit(a, uid("x", "42"))
		r.settle(first, 1, 1)
		r.settle(other, 2, 2)
		for range 3 {
			wantRefused(t, "one that was asked for again", r.admit(a, named(id, "x")), "has ended")
			wantRefused(t, "one that was not", r.admit(a, named(other.RequestID(), "x")), "has ended")
		}
	})
}

// An id that names one action does not let another one in: that was never weighed.
func TestAnIDOfAnotherAction(t *testing.T) {
	const rules = `    - {name: all, match: {api: ["a", "b"]}, limit: 100, per: 1d, strict: true}
    - {name: b, match: {api: "b"}, limit: 1, per: 1d, strict: true}
    - {name: fly-a, match: {api: "fa"}, window: in-flight, limit: 1, strict: true}
    - {name: fly-b, match: {api: "fb"}, window: in-flight, limit: 1, strict: true}
    - {name: sums, match: {api: "s"}, count: {sum: attrs.n}, limit: 5, per: 1d, strict: true}
`
	forEachAnswer(t, rules, func(t *testing.T, r *rig, a *Admitter) {
		sum := func(n string) Request {
			q := named("sum", "s")
			q.Attrs = []event.Attr{{Name: "n", Value: event.Value{Kind: event.Number, Text: n}}}
			return q
		}
		for what, q := range map[string][2]Request{
			"a limit more":   {named("id", "a"), named("id", "b")},
			"other limits":   {named("other", "a"), named("other", "s")},
			"in flight":      {named("fly", "fa"), named("fly", "fb")},
			"a larger sum":   {sum("2"), sum("4")},
			"its own suffix": {named("end", "fa"), named("end~f", "a")},
		} {
			if what == "other limits" {
				q[1].Attrs = sum("1").Attrs
			}
			first := r.admit(a, q[0])
			if !first.Admitted {
				t.Fatalf("%s: %+v", what, first)
			}
			wantRefused(t, what, r.admit(a, q[1]), "another action")
			if again := r.admit(a, q[0]); !again.Admitted || again.Event.At != first.Event.At {
				t.Errorf("%s: what has the id is held no longer: %+v", what, again)
			}
			first.Cancel()
			testrun.Eventually(t, "it is given back", func() bool { return a.Stats().CancelsWaiting == 0 })
		}
	})
}

// TestAnAmountThatCannotBeCounted: a strict limit does not let in what it cannot count, whatever is to happen
// in doubt. The caller chooses what a request lacks.
func TestAnAmountThatCannotBeCounted(t *testing.T) {
	const rules = `    - {name: sum, match: {api: sum}, count: {sum: attrs.n}, limit: 8, per: 1h, strict: true}
    - {name: count, match: {api: count}, limit: 8, per: 1h, strict: true}
    - {name: told, match: {api: told}, limit: {from: attrs.limit, most: 100, else: 5}, per: 1h, strict: true}
`
	attr := func(v event.Value) Request {
		q := uid("sum", "1")
		q.Attrs = []event.Attr{{Name: "n", Value: v}}
		return q
	}
	fraction := uid("count", "1")
	fraction.Cost = event.One * 5 / 2
	forEachAnswer(t, rules, func(t *testing.T, r *rig, a *Admitter) {
		n := uint64(0)
		for name, q := range map[string]Request{
			"absent": uid("sum", "1"), "a fraction": fraction,
			"text": attr(event.StringValue("500")), "a boolean": attr(event.Value{Kind: event.Bool, Text: "true"}),
			"negative": attr(event.Value{Kind: event.Number, Text: "-5"}), "no number": attr(event.Value{Kind: event.Number, Text: "1/3"}),
			"no limit": uid("told", "1"), "no such limit": uid("told", "1", event.Dim{Name: "attrs.limit", Value: "-3"}),
		} {
			wantRefused(t, name, r.admit(a, q), "")
			if n++; a.Stats().Refused.Uncountable != n {
				t.Errorf("%s: %+v", name, a.Stats())
			}
		}
		if p := r.admit(a, attr(event.Value{Kind: event.Number, Text: "5"})); !p.Admitted || p.InDoubt {
			t.Errorf("a number: %+v", p)
		}
	})
}

// TestMoreKeysThanAnEventNames: who may choose attributes may not choose to be in doubt by them.
func TestMoreKeysThanAnEventNames(t *testing.T) {
	var rules strings.Builder
	var dims []event.Dim
	for i := range event.MaxPermitKeys + 1 {
		fmt.Fprintf(&rules, "    - {name: r%d, key: attrs.a%d, match: {api: x}, limit: 8, per: 1h, strict: true}\n", i, i)
		dims = append(dims, event.Dim{Name: fmt.Sprint("attrs.a", i), Value: "1"})
	}
	forEachAnswer(t, rules.String(), func(t *testing.T, r *rig, a *Admitter) {
		wantRefused(t, "all keys", r.admit(a, uid("x", "1", dims...)), "17 keys")
		if p := r.admit(a, uid("x", "1", dims[1:]...)); !p.Admitted {
			t.Errorf("all but one: %+v", p)
		}
	})
}

// TestARefusalIsLoggedOnceAMinute: who asks wrongly a thousand times does not fill the log, nor keep what is in
// doubt from it.
func TestARefusalIsLoggedOnceAMinute(t *testing.T) {
	r := newRig(t, miniredis.RunT(t).Addr())
	r.rules(1, "    - {name: sum, match: {api: sum}, count: {sum: attrs.n}, limit: 8, per: 1h, strict: true}\n")
	var log bytes.Buffer
	a := r.admitter(func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 50 {
		r.admit(a, uid("sum", "1"))
	}
	if n := strings.Count(log.String(), "is denied"); n != 1 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
	if _, due := a.doubts.Due(); !due {
		t.Error("a doubt would not be logged")
	}
}
