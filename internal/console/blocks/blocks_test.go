package blocks

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

var noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// clocked is a list with one shard, and its clock.
func clocked(t testing.TB) (*List, *time.Time) {
	t.Helper()
	at := noon
	l := New(func() time.Time { return at })
	if err := l.SetShards(1); err != nil {
		t.Fatal(err)
	}
	return l, &at
}

func block(uid, rule string, until time.Duration) verdict.Verdict {
	return verdict.Verdict{Rule: rule, Key: []event.Dim{{Name: "uid", Value: uid}}, Count: event.One, Limit: event.One,
		Since: event.FromTime(noon), Until: event.FromTime(noon.Add(until)), Seq: 1}
}

func uids(p Page) (out []string) {
	for i := range p.Rows {
		out = append(out, p.Rows[i].Key[len(p.Rows[i].Key)-1].Value)
	}
	return out
}

func page(t testing.TB, l *List, q Query) Page {
	t.Helper()
	p, err := l.Page(q)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFiltersAndOrders(t *testing.T) {
	l, _ := clocked(t)
	throttle, err := verdict.ParseAction("throttle")
	if err != nil {
		t.Fatal(err)
	}
	a, b, c, d := block("a", "search/burst", 3*time.Hour), block("b", "search", time.Hour), block("c", "login", 2*time.Hour), block("d", "login", time.Minute)
	b.Mode, c.State, c.Step, a.Action = verdict.Shadow, verdict.Warn, "50%", throttle
	b.Since += 5
	c.Count = 9 * event.One
	d.Key = []event.Dim{{Name: "api", Value: "pay"}, {Name: "uid", Value: "d"}}
	left := block("e", "login", time.Hour)
	left.State = verdict.Left
	l.Replace(0, []verdict.Verdict{a, b, c, d, left, block("f", "login", 0)})
	for _, c := range []struct {
		want string
		q    Query
	}{
		{"[d b c a]", Query{}},
		{"[b d a c]", Query{Sort: BySince}},
		{"[c d a b]", Query{Sort: ByCount}},
		{"[b a]", Query{Rule: "search"}},
		{"[a]", Query{Rule: "search/burst"}},
		{"[b]", Query{Kind: Shadow}},
		{"[c]", Query{Kind: Warn}},
		{"[d a]", Query{Kind: Enforce}},
		{"[a]", Query{Action: "throttle"}},
		{"[d b]", Query{EndsWithin: time.Hour}},
		{"[d]", Query{Dim: "api"}},
		{"[c]", Query{Key: []event.Dim{{Name: "uid", Value: "c"}}}},
		{"[]", Query{Key: []event.Dim{{Name: "uid", Value: "C"}}}},
	} {
		if got := fmt.Sprint(uids(page(t, l, c.q))); got != c.want {
			t.Errorf("%+v: %s, want %s", c.q, got, c.want)
		}
	}
	p := page(t, l, Query{Rule: "login"})
	if p.All != 4 || p.Found != 2 || fmt.Sprint(p.ByRule) != "[{login 1 0 1} {search 0 1 0} {search/burst 1 0 0}]" {
		t.Errorf("%d of %d, %v", p.Found, p.All, p.ByRule)
	}
	for _, bad := range []Query{{Sort: "key"}, {Kind: "off"}, {Action: "kick"}, {After: "x"}, {After: "x y"}} {
		if _, err := l.Page(bad); err == nil {
			t.Errorf("%+v is answered", bad)
		}
	}
}

// A block ends by the clock, whether or not the feed says anything more.
func TestWhatIsOverIsNotListed(t *testing.T) {
	l, at := clocked(t)
	l.Apply(0, []verdict.Verdict{block("a", "r", time.Minute), block("b", "r", time.Hour)})
	*at = noon.Add(time.Minute - time.Microsecond)
	if p := page(t, l, Query{}); p.All != 2 {
		t.Errorf("%d are in force", p.All)
	}
	*at = noon.Add(time.Minute)
	if p := page(t, l, Query{}); p.All != 1 || l.Health().Stored != 2 {
		t.Errorf("%d are in force, %d are stored", p.All, l.Health().Stored)
	}
	l.Heartbeat(0, event.FromTime(*at))
	if got := l.Health().Stored; got != 1 {
		t.Errorf("%d are stored after a sweep", got)
	}
}

// A clear ends the block, and an older verdict that comes late does not bring it back.
func TestClearsAndLateVerdicts(t *testing.T) {
	l, at := clocked(t)
	v := block("a", "r", time.Hour)
	v.Seq = 5
	l.Apply(0, []verdict.Verdict{v})
	gone := v
	gone.State, gone.Seq, gone.Until = verdict.Clear, 6, gone.Since
	l.Apply(0, []verdict.Verdict{gone, v})
	if p := page(t, l, Query{}); p.All != 0 {
		t.Errorf("%d are in force", p.All)
	}
	l.Heartbeat(0, 0)
	l.Apply(0, []verdict.Verdict{v})
	if p := page(t, l, Query{}); p.All != 0 {
		t.Error("a sweep forgot that it was cleared a moment ago")
	}
	*at = noon.Add(11 * time.Minute)
	if l.Heartbeat(0, 0); l.Health().Stored != 0 {
		t.Error("it is remembered for good")
	}
	again := block("a", "r", time.Hour)
	again.Seq = 7
	l.Apply(0, []verdict.Verdict{again})
	l.Remove(0, verdict.AppendRecordKey(nil, &again))
	l.Remove(0, []byte("none"))
	if l.Health().Stored != 0 {
		t.Error("a removed verdict stays")
	}
}

func TestHealth(t *testing.T) {
	at := noon
	l := New(func() time.Time { return at })
	if err := l.SetShards(0); err == nil || l.Health().Ready {
		t.Error("it is ready with no shard")
	}
	if err := l.SetShards(2); err != nil {
		t.Fatal(err)
	}
	l.Replace(0, []verdict.Verdict{block("a", "r", time.Hour)})
	if l.Health().Ready {
		t.Error("it is ready with one of two shards")
	}
	l.Replace(1, []verdict.Verdict{block("b", "r", time.Hour)})
	l.Heartbeat(0, event.FromTime(noon))
	l.Heartbeat(1, event.FromTime(noon.Add(-time.Minute)))
	l.Heartbeat(7, 0)
	if h := l.Health(); !h.Ready || h.Staleness != time.Minute || h.Stored != 2 {
		t.Errorf("%+v", h)
	}
	l.Replace(0, nil) // one shard only
	if got := uids(page(t, l, Query{})); !slices.Equal(got, []string{"b"}) {
		t.Errorf("%v are left", got)
	}
}

func TestALimitedNumberIsKept(t *testing.T) {
	l, _ := clocked(t)
	l.max = 2
	l.Replace(0, []verdict.Verdict{block("a", "r", time.Hour), block("b", "r", time.Hour), block("c", "r", time.Hour)})
	if h := l.Health(); h.Stored != 2 || h.LeftOut != 1 {
		t.Errorf("%+v", h)
	}
}

// many are blocks with ends and rules by chance.
func many(n int, seed uint64) []verdict.Verdict {
	rnd := rand.New(rand.NewPCG(seed, 0))
	all := make([]verdict.Verdict, n)
	for i := range all {
		all[i] = block(fmt.Sprintf("user-%07d", i), fmt.Sprint("rule-", rnd.IntN(50)), time.Duration(1+rnd.IntN(86400))*time.Second)
		all[i].APIs, all[i].Public = []string{"search.*"}, "limit"
		all[i].Count = event.Decimal(rnd.IntN(1000)) * event.One
		all[i].Cause.ID = fmt.Sprintf("event-%026d", i)
	}
	return all
}

// Whoever goes from page to page sees each verdict once, in order, while others come and go.
func TestPagesTogetherAreTheList(t *testing.T) {
	seed := testrun.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for _, sort := range []string{ByUntil, BySince, ByCount} {
		l, _ := clocked(t)
		all := many(1000, seed)
		l.Replace(0, all)
		seen := map[string]int{}
		q := Query{Sort: sort, Limit: 1 + rnd.IntN(200)}
		for n := 0; ; n++ {
			p := page(t, l, q)
			for _, uid := range uids(p) {
				seen[uid]++
			}
			if p.Next == "" {
				break
			}
			if q.After = p.Next; n == 0 { // the last row of the page goes
				gone := p.Rows[len(p.Rows)-1]
				l.Remove(0, verdict.AppendRecordKey(nil, &gone))
			}
		}
		if len(seen) != len(all) {
			t.Errorf("by %s, %d a page: %d of %d are seen", sort, q.Limit, len(seen), len(all))
		}
		for uid, n := range seen {
			if n != 1 {
				t.Errorf("by %s: %s is seen %d times", sort, uid, n)
			}
		}
	}
}

// The promise of the page of 100,000: its memory. Its time is BenchmarkPage's.
func TestAHundredThousandFit(t *testing.T) {
	before := heapBytes()
	l, _ := clocked(t)
	for i, all := 0, many(100_000, 1); i < len(all); i += 1000 {
		l.Apply(0, all[i:i+1000])
	}
	used := heapBytes() - before
	t.Logf("%d bytes for each", used/100_000)
	if used > 100<<20 {
		t.Errorf("100,000 verdicts take %d MB", used>>20)
	}
	if p := page(t, l, Query{}); p.All != 100_000 || len(p.Rows) != defaultLimit || len(p.ByRule) != 50 {
		t.Errorf("%d, %d rows, %d rules", p.All, len(p.Rows), len(p.ByRule))
	}
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkPage(b *testing.B) {
	l, _ := clocked(b)
	l.Replace(0, many(100_000, 1))
	for name, q := range map[string]Query{"until": {}, "count": {Sort: ByCount}, "key": {Key: []event.Dim{{Name: "uid", Value: "user-0050000"}}}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				page(b, l, q)
			}
		})
	}
}
