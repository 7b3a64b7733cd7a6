package e2e

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// traffic makes events of all kinds, for uids of which few are very busy.
type traffic struct {
	rnd    *rand.Rand
	uids   int
	prefix string       // of uids and ids; "" is u, and e
	late   event.Micros // how late events may be; 0 is half an hour
	n      int
}

func (g *traffic) next() event.Event {
	g.n++
	e := event.Event{UID: g.uid(), Cost: event.One, Time: g.time(), BrokerTime: event.NoTime, IP: g.ip()}
	if g.rnd.IntN(3) == 0 {
		e.ID = fmt.Sprintf("%s%d", cmp.Or(g.prefix, "e"), g.n)
	}
	if g.rnd.IntN(20) == 0 {
		e.Cost = 3 * event.One
	}
	switch g.rnd.IntN(10) {
	case 0, 1, 2:
		e.API, e.Outcome = "order.create", [...]string{"success", "success", "failure", event.OutcomeLimited}[g.rnd.IntN(4)]
		e.Attrs = []event.Attr{
			{Name: "discounted", Value: event.BoolValue(g.rnd.IntN(2) == 0)},
			{Name: "campaign", Value: event.StringValue(fmt.Sprintf("c%d", g.rnd.IntN(4)))},
			{Name: "shop", Value: event.StringValue(fmt.Sprintf("s%d", g.rnd.IntN(200)))},
		}
	case 3:
		e.API = "order.update"
	case 4, 5, 6:
		e.API = "search.query"
		if g.rnd.IntN(3) > 0 {
			e.Attrs = []event.Attr{{Name: "quota", Value: event.NumberValue(event.Decimal(g.rnd.IntN(70)) * event.One)}}
		}
	case 7:
		e.API = "search.suggest"
	case 8:
		e.API = "upload.put"
		e.Attrs = []event.Attr{{Name: "bytes", Value: event.NumberValue(event.Decimal(g.rnd.IntN(500_000)) * event.One)}}
	default:
		e.API = "profile.view"
	}
	return e
}

// uid takes every other event from a few hundred uids, and most of the rest evenly.
func (g *traffic) uid() string {
	n := g.rnd.IntN(g.uids)
	if g.rnd.IntN(4) == 0 {
		n = g.rnd.IntN(1 + g.uids/50)
	}
	return fmt.Sprintf("%s%d", cmp.Or(g.prefix, "u"), n)
}

// time is mostly the broker's; else late, or too late, or of a clock that runs ahead.
func (g *traffic) time() event.Micros {
	now := event.FromTime(time.Now())
	switch n := g.rnd.IntN(100); {
	case n < 70:
		return event.NoTime
	case n < 95:
		return now - event.Micros(g.rnd.Int64N(int64(cmp.Or(g.late, 30*event.Minute))))
	case n < 98:
		return now - 2*event.Hour
	default:
		return now + event.Hour
	}
}

func (g *traffic) ip() netip.Addr {
	n := g.rnd.IntN(2000)
	if n%4 == 0 {
		return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(n), byte(n >> 8), 15: byte(g.rnd.IntN(8))})
	}
	return netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)})
}

// emitter starts an emitter that must not drop anything.
func (r *rig) emitter(change func(*emit.Config)) *emit.Emitter {
	r.t.Helper()
	cfg := emit.Config{Brokers: r.brokers, Prefix: r.prefix, AsIs: true,
		OnDrop: func(d emit.Drop) { r.t.Errorf("an emitter dropped %+v", d) }}
	if change != nil {
		change(&cfg)
	}
	e, err := emit.New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return e
}

// emitSlowly emits n events through emitters with these EventsPerRecord, a thousand a tick,
// and keeps the last tenth back until hold is closed.
func (r *rig) emitSlowly(g *traffic, n int, tick time.Duration, hold <-chan struct{}, perRecord ...int) {
	t := r.t
	t.Helper()
	var es []*emit.Emitter
	for _, size := range perRecord {
		es = append(es, r.emitter(func(c *emit.Config) { c.EventsPerRecord = size }))
	}
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for i := range n {
		if i == n-n/10 && hold != nil {
			<-hold
		}
		if i%1000 == 0 {
			<-ticks.C
		}
		if err := es[i%len(es)].EmitWait(t.Context(), g.next()); err != nil {
			t.Errorf("emit: %v", err)
			break
		}
	}
	for _, e := range es {
		closeEmitter(t, e)
	}
}

func closeEmitter(t *testing.T, e *emit.Emitter) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		t.Errorf("close the emitter: %v", err)
	}
}

// inBackground runs f beside the test, and returns what waits for it.
func inBackground(f func()) (wait func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	return wg.Wait
}

// uidKeys turns uids into keys.
func uidKeys(uids ...string) []string {
	out := make([]string, len(uids))
	for i, uid := range uids {
		out[i] = event.FormatKey([]event.Dim{{Name: "uid", Value: uid}})
	}
	return out
}

// uidOf is the inverse, for one.
func uidOf(key string) string {
	dims, err := event.ParseKey([]byte(key))
	if err != nil {
		panic(err) // uidKeys wrote it
	}
	return dims[0].Value
}
