package suggest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/tallygate/tallygate/event"
)

const twinRules = `
    - {name: sliding, match: {api: "*"}, limit: suggest, per: 1m, then: {block: 5m}}
    - {name: tumbling, match: {api: "*"}, limit: suggest, per: 1m, window: tumbling, then: {block: 5m}}
    - {name: hourly, match: {api: "*"}, limit: suggest, per: hour, window: calendar, then: {block: until-reset}}
    - {name: session, match: {api: "*"}, limit: suggest, gap: 10s, window: session, then: {block: 5m}}
    - {name: hopping, match: {api: "*"}, limit: suggest, per: 1m, every: 20s, window: hopping, then: {block: 5m}}
    - {name: sum, match: {api: "*"}, count: {sum: cost}, limit: suggest, per: 1m, then: {block: 5m, reset: true}}
    - {name: bucket, match: {api: "*"}, limit: 2, per: 1s, burst: suggest, window: bucket, then: {block: until-reset}}
    - {name: values, match: {api: "*"}, count: {distinct: ip}, limit: suggest, per: 1m, window: tumbling, then: {block: 5m}}
    - {name: recent, match: {api: "*"}, count: {distinct: ip}, limit: suggest, per: 1m, then: {block: 5m}}
`

// twin counts one key from scratch at each event: it keeps all that came, in the order in which it came.
type twin struct {
	came   []event.Event // that was not too late
	latest event.Micros
	level  event.Decimal

	high   event.Decimal
	counts []event.Decimal // after each event that added something
}

// since sums what a window holds, or counts its values.
func (w *twin) since(holds func(at event.Micros) bool, values bool) (n event.Decimal) {
	seen := map[netip.Addr]bool{}
	for i := range w.came {
		switch e := &w.came[i]; {
		case !holds(e.Time):
		case !values:
			n += e.Cost
		case !seen[e.IP]:
			seen[e.IP] = true
			n += event.One
		}
	}
	return n
}

// add counts an event. window tells which times count together with it, by the latest time; nil: it is too late.
func (w *twin) add(e *event.Event, values bool, window func(at, latest event.Micros) func(event.Micros) bool) {
	latest := max(w.latest, e.Time)
	if len(w.came) == 0 {
		latest = e.Time
	}
	holds := window(e.Time, latest)
	if holds == nil {
		return
	}
	before := w.since(holds, values)
	w.latest, w.came = latest, append(w.came, *e)
	w.note(w.since(holds, values), before, values)
}

func (w *twin) note(count, before event.Decimal, values bool) {
	if values && count == before {
		return
	}
	w.high = max(w.high, count)
	w.counts = append(w.counts, count)
}

const minute = event.Minute

// Sliding windows by times, and by panes of a second.
func times(at, latest event.Micros) func(event.Micros) bool {
	if at <= latest-minute {
		return nil
	}
	return func(t event.Micros) bool { return t > latest-minute }
}

func panes(at, latest event.Micros) func(event.Micros) bool {
	if at <= latest-minute {
		return nil
	}
	return func(t event.Micros) bool { return t-t%event.Second+event.Second+minute > latest }
}

func tumbling(per event.Micros) func(at, latest event.Micros) func(event.Micros) bool {
	return func(at, latest event.Micros) func(event.Micros) bool {
		if at/per < latest/per-1 {
			return nil
		}
		return func(t event.Micros) bool { return t/per == at/per }
	}
}

// bucket counts a late event as if it came now: two tokens a second leave, which is two millionths a microsecond.
func (w *twin) bucket(e *event.Event) {
	if len(w.came) > 0 && e.Time > w.latest {
		w.level = max(w.level-2*event.Decimal(e.Time-w.latest), 0)
	}
	if len(w.came) == 0 || e.Time > w.latest {
		w.latest = e.Time
	}
	w.came = append(w.came, *e)
	w.level += e.Cost
	w.note(w.level, 0, false)
}

// session counts the events that are linked to one by gaps of less than ten seconds.
func (w *twin) session(e *event.Event) {
	w.came = append(w.came, *e)
	sorted := slices.Clone(w.came)
	slices.SortStableFunc(sorted, func(a, b event.Event) int { return int(a.Time - b.Time) })
	var n event.Decimal
	for i, x := range sorted {
		if i > 0 && x.Time-sorted[i-1].Time >= 10*event.Second {
			if sorted[i-1].Time >= e.Time {
				break
			}
			n = 0
		}
		n += x.Cost
	}
	w.note(n, 0, false)
}

// hopping counts in each window that holds the event; the greatest is judged.
func (w *twin) hopping(e *event.Event) {
	w.came = append(w.came, *e)
	var most event.Decimal
	const every = 20 * event.Second
	for start := e.Time - e.Time%every; start > e.Time-minute; start -= every {
		most = max(most, w.since(func(t event.Micros) bool { return start <= t && t < start+minute }, false))
	}
	w.note(most, 0, false)
}

// twins counts all keys; the exact ones by times.
func twins(events []event.Event) (all, exact map[string]map[string]*twin) {
	all, exact = map[string]map[string]*twin{}, map[string]map[string]*twin{}
	of := func(in map[string]map[string]*twin, limit, uid string) *twin {
		if in[limit] == nil {
			in[limit] = map[string]*twin{}
		}
		if in[limit][uid] == nil {
			in[limit][uid] = &twin{}
		}
		return in[limit][uid]
	}
	for i := range events {
		e := &events[i]
		of(all, "sliding", e.UID).add(e, false, panes)
		of(exact, "sliding", e.UID).add(e, false, times)
		of(all, "tumbling", e.UID).add(e, false, tumbling(minute))
		of(all, "hourly", e.UID).add(e, false, tumbling(event.Hour))
		of(all, "sum", e.UID).add(e, false, panes)
		of(all, "values", e.UID).add(e, true, tumbling(minute))
		of(all, "recent", e.UID).add(e, true, panes)
		of(exact, "recent", e.UID).add(e, true, times)
		of(all, "bucket", e.UID).bucket(e)
		of(all, "session", e.UID).session(e)
		of(all, "hopping", e.UID).hopping(e)
	}
	return all, exact
}

// traffic is of some users, of whom few are busy; a fifth of it is up to five seconds late.
func traffic(r *rand.Rand, n int) (events []event.Event) {
	now := 1000 * event.Hour
	for range n {
		now += event.Micros(r.IntN(int(400 * event.Millisecond)))
		if r.IntN(50) == 0 {
			now += event.Micros(r.IntN(90)) * event.Second
		}
		who := min(r.IntN(20), r.IntN(20), r.IntN(20))
		e := event.Event{UID: fmt.Sprint("u", who), API: "a", BrokerTime: event.NoTime, IP: netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(80))}), Cost: event.Decimal(1+r.IntN(3)) * event.One, Time: now}
		if r.IntN(5) == 0 {
			e.Time -= event.Micros(r.IntN(int(5 * event.Second)))
		}
		events = append(events, e)
	}
	return events
}

// Each key's highest count, and each limit for a share, is that of a naive count of the same events.
func TestTwin(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for round := range 4 {
		events := traffic(r, 1500)
		s, result := studied(t, twinRules, events, Wish{Share: "7.5%", Events: round%2 == 1})
		all, exact := twins(events)
		for i, m := range s.measures {
			name := m.limit.Name
			if m.sought.Exact != (exact[name] != nil) {
				t.Fatalf("%s: by exact times: %v", name, m.sought.Exact)
			}
			if len(m.keys) != len(all[name]) {
				t.Fatalf("%s: %d keys, want %d", name, len(m.keys), len(all[name]))
			}
			for uid, want := range all[name] {
				k := m.keys["uid="+uid]
				if k.high != want.high {
					t.Errorf("%s of %s: %v, want %v", name, uid, k.high, want.high)
				}
				if x := exact[name][uid]; x != nil && (x.high <= exactTo || k.highExact <= exactTo) && k.highExact != x.high {
					t.Errorf("%s of %s: exact %v, want %v", name, uid, k.highExact, x.high)
				}
			}
			for _, c := range append(result.Limits[i].Choices, m.choose("7.5%", ofKeys), m.choose("30%", ofEvents)) {
				twinChoice(t, name, &c, all[name], exact[name])
			}
		}
	}
}

// twinChoice looks for the least limit by trying one after the other.
func twinChoice(t *testing.T, name string, c *Choice, all, exact map[string]*twin) {
	t.Helper()
	over := func(limit event.Decimal) (keys, events, ofEvents int) {
		in := all
		if exact != nil && limit <= exactTo {
			in = exact
		}
		for _, w := range in {
			if w.high > limit {
				keys++
			}
			for _, count := range w.counts {
				if count > limit {
					events++
				}
			}
		}
		for _, w := range all {
			ofEvents += len(w.counts)
		}
		return keys, events, ofEvents
	}
	share, err := ParseShare(c.Share)
	if err != nil {
		t.Fatal(err)
	}
	for limit := event.One; ; limit += event.One {
		keys, events, total := over(limit)
		n, most := keys, of(share, len(all))
		if c.Of == ofEvents {
			n, most = events, of(share, total)
		}
		if n > most {
			continue
		}
		if c.Least != limit {
			t.Errorf("%s: %s of %s: at least %v, want %v", name, c.Share, c.Of, c.Least, limit)
		}
		break
	}
	keys, events, total := over(c.Limit)
	if keys != c.Keys || events != c.Events {
		t.Errorf("%s: over %v are %d keys and %d events, want %d and %d", name, c.Limit, c.Keys, c.Events, keys, events)
	}
	if c.Of == ofKeys && keys > of(share, len(all)) || c.Of == ofEvents && events > of(share, total) || c.Limit < c.Least {
		t.Errorf("%s: %v hits more than %s of %s", name, c.Limit, c.Share, c.Of)
	}
}
