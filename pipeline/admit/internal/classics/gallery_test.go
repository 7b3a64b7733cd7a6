package classics

import (
	"fmt"
	"os"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/admit/instance"
	"github.com/tallygate/tallygate/rules"
)

// The gallery's tests are of events and verdicts. Here its strict rules, and those of one process,
// meet requests.

func source(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../../testdata/rules/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// asks asks for permits with dimensions as name, value, name, value.
func (b *before) asks(n int, q admit.Request, dims ...string) (granted []*admit.Permit) {
	b.t.Helper()
	for i := 0; i < len(dims); i += 2 {
		q.Dims = append(q.Dims, event.Dim{Name: dims[i], Value: dims[i+1]})
	}
	for range n {
		if p := b.ask(q); p.Admitted {
			granted = append(granted, p)
		}
	}
	return granted
}

func TestStrictRulesOfTheGallery(t *testing.T) {
	for _, c := range []struct {
		file, api string
		cost      event.Decimal
		want      int
		dims      []string
	}{
		{"coupons-per-campaign", "coupon.redeem", 0, 2, []string{"uid", "u1", "attrs.campaign", "winter"}},
		{"sms-per-day", "sms.send", 0, 20, []string{"attrs.number", "n1", "attrs.customer", "c1"}},
		{"exports-at-once", "report.export", 0, 3, []string{"attrs.customer", "c1"}},
		{"item-stock", "order.create", event.One, 10, []string{"attrs.item", "console"}},
		{"item-stock", "order.create", 3 * event.One, 3, []string{"attrs.item", "console"}},
		{"item-stock", "order.create", 3 * event.One, 0, []string{"attrs.item", "console", "uid", "u1"}},
		{"account-seats", "session.use", 0, 5, []string{"attrs.account", "a1"}},
		{"account-seats", "session.use", 0, 50, []string{"attrs.account", "a1", "attrs.plan", "team"}},
		{"account-seats", "session.use", 0, 60, []string{"attrs.account", "a1", "attrs.plan", "internal"}},
	} {
		t.Run(fmt.Sprint(c.file, c.dims), func(t *testing.T) {
			t.Parallel()
			b := newBeforeOf(t, source(t, c.file), rngOf(1))
			if got := len(b.asks(60, admit.Request{API: c.api, Cost: c.cost}, c.dims...)); got != c.want {
				t.Errorf("%d permits, want %d", got, c.want)
			}
		})
	}
}

// A seat is free a quarter of an hour after its session last asked, or when it is given back.
func TestSeatsAreRenewed(t *testing.T) {
	b := newBeforeOf(t, source(t, "account-seats"), rngOf(1))
	session := func(id string) []*admit.Permit {
		return b.asks(1, admit.Request{API: "session.use", ID: id}, "attrs.account", "a1")
	}
	var first *admit.Permit
	for i := range 5 {
		first = session(fmt.Sprint("s", i))[0]
	}
	b.redis.SetTime((ten + 10*minute).Time())
	if len(session("s0")) != 1 || len(session("s5")) != 0 {
		t.Error("a session that asks again has its seat, and there is no sixth")
	}
	b.redis.SetTime((ten + 15*minute).Time())
	if n := len(session("s5")) + len(session("s6")) + len(session("s7")) + len(session("s8")) + len(session("s9")); n != 4 {
		t.Errorf("%d seats are free, want those of four that did not ask again", n)
	}
	if len(session("s0")) != 1 {
		t.Error("the one that did has lost its seat")
	}
	first.Done("") // its seat is gone already
	last := session("s0")[0]
	last.Done("")
	testrun.Eventually(t, "a seat that is given back is free", func() bool { return len(session("s10")) == 1 })
}

func TestProcessLimitsOfTheGallery(t *testing.T) {
	set, err := rules.Compile("process-limits.yaml", []byte(source(t, "process-limits")))
	if err != nil {
		t.Fatal(err)
	}
	now := ten
	limits := instance.New(set, instance.Options{Now: func() event.Micros { return now }})
	let := func(api, item string, n int, done bool) (in int) {
		for range n {
			e := event.Event{API: api, UID: "u1", Cost: event.One, Attrs: []event.Attr{{Name: "item", Value: event.StringValue(item)}}}
			r, p := limits.Admit(&e)
			if r.Allowed {
				in++
			}
			if done {
				p.Done()
			}
		}
		return in
	}
	for _, c := range []struct {
		what, api, item string
		done            bool
		want            int
	}{
		{"a quarter of the burst while it is cold", "search.query", "i1", true, 12},
		{"each API by itself", "search.suggest", "i1", true, 12},
		{"a hot item", "item.view", "i1", true, 60},
		{"another one", "item.view", "i2", true, 60},
		{"at once", "item.buy", "i1", false, 40},
		{"while these are under way", "item.buy", "i1", true, 0},
	} {
		if got := let(c.api, c.item, 100, c.done); got != c.want {
			t.Errorf("%s: %d are let in, want %d", c.what, got, c.want)
		}
	}
}
