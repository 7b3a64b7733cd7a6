package enforce

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

// queue is a table, and requests that wait in its lines.
type queue struct {
	t        *testing.T
	table    *Table
	throttle *Throttle
	began    time.Time
	all      sync.WaitGroup
	seq      int64

	mu   sync.Mutex
	left []string // who, when, and how
}

func newQueue(t *testing.T, cfg ThrottleConfig) *queue {
	t.Helper()
	table := running(t, Config{})
	throttle, err := NewThrottleWith(table, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &queue{t: t, table: table, throttle: throttle, began: time.Now()}
}

// throttles puts a throttle of four a second in force, until a moment of the test.
func (q *queue) throttles(rule, key string, until time.Duration, change ...func(*verdict.Verdict)) {
	q.seq++
	at := event.FromTime(q.began)
	q.table.Apply(0, []verdict.Verdict{block(rule, key, func(v *verdict.Verdict) {
		v.Action, v.Seq, v.Since, v.Until = verdict.ActThrottle, q.seq, at, at+event.FromDuration(until)
		v.Limit, v.Per = 4*event.One, event.Second
		for _, c := range change {
			c(v)
		}
	})})
}

// ask is a request of someone with these dimensions, such as uid=42.
func (q *queue) ask(ctx context.Context, name, api, key string) {
	dims, err := event.ParseKey([]byte(key))
	if err != nil {
		q.t.Fatal(err)
	}
	q.all.Go(func() {
		d := q.throttle.Await(ctx, q.table.CheckDims(api, dims), api, dims)
		how := "allowed"
		if !d.Allowed {
			how = fmt.Sprintf("%s by %s, retry after %d", d.Action(), d.Rule(), int(d.RetryAfter()/time.Second))
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		q.left = append(q.left, fmt.Sprintf("%s %v %s", name, time.Since(q.began), how))
	})
	synctest.Wait()
}

func (q *queue) at(d time.Duration) {
	time.Sleep(time.Until(q.began.Add(d)))
	synctest.Wait()
}

// want waits for all. Several may leave at the same moment, so only the moments count.
func (q *queue) want(want ...string) {
	q.t.Helper()
	q.all.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	slices.Sort(q.left)
	if slices.Sort(want); !slices.Equal(q.left, want) {
		q.t.Errorf("\n got %q\nwant %q", q.left, want)
	}
	q.left = nil
}

// Eight who waited for the end of one verdict left within a millisecond.
func TestThrottledRequestsLeaveOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, ThrottleConfig{MaxDelay: 5 * time.Second})
		q.throttles("r", "uid=42", time.Second)
		for i := range 8 {
			q.ask(t.Context(), fmt.Sprint(i), "a", "uid=42")
		}
		q.want("0 1s allowed", "1 1.25s allowed", "2 1.5s allowed", "3 1.75s allowed", "4 2s allowed", "5 2.25s allowed", "6 2.5s allowed", "7 2.75s allowed")
		if s := q.throttle.Stats(); s != (ThrottleStats{Released: 8}) {
			t.Errorf("%+v", s)
		}
	})
}

// A request that comes when the verdict has ended, but others still wait, is behind them. Who has
// another key, or asks for an API that the verdict doesn't cover, is let through at once.
func TestNobodyOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, ThrottleConfig{MaxDelay: 1200 * time.Millisecond})
		q.throttles("r", "ip/64=2001:db8::/64", time.Second, func(v *verdict.Verdict) { v.APIs = []string{"a.*"} })
		for i := range 3 {
			q.at(time.Duration(500+i) * time.Millisecond)
			q.ask(t.Context(), fmt.Sprint(i), "a.b", "ip=2001:db8::1")
		}
		q.at(1100 * time.Millisecond)
		q.ask(t.Context(), "behind", "a.b", "ip=2001:db8::2&uid=7")
		q.ask(t.Context(), "another key", "a.b", "ip=2001:db9::1")
		q.ask(t.Context(), "no key", "a.b", "uid=7")
		q.ask(t.Context(), "another API", "b", "ip=2001:db8::1")
		q.want("0 1s allowed", "another key 1.1s allowed", "no key 1.1s allowed", "another API 1.1s allowed", "1 1.25s allowed", "2 1.5s allowed", "behind 1.75s allowed")
		q.ask(t.Context(), "at a distance", "a.b", "ip=2001:db8::3")
		q.want("at a distance 2s allowed")
		q.at(2250 * time.Millisecond)
		if q.throttle.Busy() {
			t.Error("a line is left an interval after the last one")
		}
	})
}

// Nobody waits in vain: who would wait too long, or for whom there is no room, is denied at once, and
// told when a turn is free.
func TestADenialSaysWhenATurnIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(v *verdict.Verdict) { v.Per = 8 * event.Second } // one every two seconds
		q := newQueue(t, ThrottleConfig{MaxDelay: 4500 * time.Millisecond, MaxDelayed: 5, MaxDelayedPerKey: 3})
		q.throttles("r", "uid=1", time.Second, slow)
		q.throttles("r", "uid=2", time.Second, slow)
		q.throttles("r", "uid=3", time.Minute, slow)
		q.ask(t.Context(), "far", "a", "uid=3")
		for _, name := range []string{"0", "1", "late"} {
			q.ask(t.Context(), name, "a", "uid=1")
		}
		q.ask(t.Context(), "far, beside those who wait", "a", "uid=3")
		q.throttles("r", "uid=4", time.Second)
		for _, name := range []string{"0", "1", "2", "full for the key"} {
			q.ask(t.Context(), "of 4: "+name, "a", "uid=4")
		}
		q.ask(t.Context(), "full", "a", "uid=2")
		q.want("far 0s throttle by r, retry after 60", "late 0s throttle by r, retry after 5", "far, beside those who wait 0s throttle by r, retry after 60",
			"of 4: full for the key 0s throttle by r, retry after 2", "full 0s throttle by r, retry after 1",
			"0 1s allowed", "of 4: 0 1s allowed", "of 4: 1 1.25s allowed", "of 4: 2 1.5s allowed", "1 3s allowed")
		if s := q.throttle.Stats(); s != (ThrottleStats{Released: 5, TurnedAway: 5}) {
			t.Errorf("%+v", s)
		}
	})
}

// A denial in a line whose verdict has ended says when a turn is free, too.
func TestADenialBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, ThrottleConfig{MaxDelay: 3 * time.Second, MaxDelayed: 2})
		q.throttles("r", "uid=42", time.Second, func(v *verdict.Verdict) { v.Per = 8 * event.Second })
		q.ask(t.Context(), "0", "a", "uid=42")
		q.ask(t.Context(), "1", "a", "uid=42")
		q.at(1500 * time.Millisecond)
		q.ask(t.Context(), "late", "a", "uid=42")
		ctx, cancel := context.WithCancel(t.Context())
		q.at(2500 * time.Millisecond)
		q.ask(ctx, "leaves", "a", "uid=42")
		q.ask(ctx, "full", "a", "uid=42")
		cancel()
		q.want("0 1s allowed", "late 1.5s throttle by r, retry after 4", "full 2.5s throttle by r, retry after 5", "leaves 2.5s throttle by r, retry after 2", "1 3s allowed")
		if s := q.throttle.Stats(); s != (ThrottleStats{Released: 2, GaveUp: 1, TurnedAway: 2}) {
			t.Errorf("%+v", s)
		}
	})
}

// A verdict that comes meanwhile, or moves, holds those up who wait. They keep their places, and who
// would wait too long is denied at once.
func TestAVerdictMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, ThrottleConfig{MaxDelay: 3 * time.Second})
		q.throttles("r", "uid=42", time.Second)
		for i := range 8 {
			q.ask(t.Context(), fmt.Sprint(i), "a", "uid=42")
		}
		q.at(1300 * time.Millisecond)
		q.throttles("r", "uid=42", 2200*time.Millisecond)
		q.at(1600 * time.Millisecond)
		q.ask(t.Context(), "8", "a", "uid=42")
		q.want("0 1s allowed", "1 1.25s allowed", "6 1.5s throttle by r, retry after 2", "7 1.5s throttle by r, retry after 2",
			"2 2.2s allowed", "3 2.45s allowed", "4 2.7s allowed", "5 2.95s allowed", "8 3.2s allowed")
	})
}

// Another action that comes meanwhile denies all who wait, each when its turn has come.
func TestABlockMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, ThrottleConfig{MaxDelay: 3 * time.Second})
		q.throttles("r", "uid=42", time.Second)
		for i := range 3 {
			q.ask(t.Context(), fmt.Sprint(i), "a", "uid=42")
		}
		q.throttles("b", "uid=42", 10*time.Second, func(v *verdict.Verdict) { v.Action = verdict.ActBlock })
		q.want("0 1s block by b, retry after 9", "1 1s block by b, retry after 9", "2 1s block by b, retry after 9")
		if q.throttle.Busy() {
			t.Error("a line is left")
		}
	})
}

// Of two rules one waits after the other, in the line of each.
func TestTwoLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, ThrottleConfig{MaxDelay: 5 * time.Second})
		q.throttles("longer", "ip=192.0.2.1", 2*time.Second)
		q.throttles("shorter", "uid=42", time.Second)
		q.ask(t.Context(), "both", "a", "ip=192.0.2.1&uid=42")
		q.ask(t.Context(), "both, too", "a", "ip=192.0.2.1&uid=42")
		q.ask(t.Context(), "uid only", "a", "uid=42")
		q.at(1500 * time.Millisecond)
		q.throttles("shorter", "uid=42", 2100*time.Millisecond)
		q.ask(t.Context(), "uid only, too", "a", "uid=42")
		q.want("uid only 1s allowed", "uid only, too 2.1s allowed", "both 2.35s allowed", "both, too 2.6s allowed")
	})
}

// A verdict that is cleared holds nobody up any longer, once another request shows it.
func TestAClearedThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, ThrottleConfig{MaxDelay: time.Minute})
		q.throttles("r", "uid=42", 30*time.Second)
		q.ask(t.Context(), "0", "a", "uid=42")
		q.ask(t.Context(), "1", "a", "uid=42")
		q.at(time.Second)
		q.throttles("r", "uid=42", 0, func(v *verdict.Verdict) { v.State = verdict.Clear })
		q.ask(t.Context(), "2", "a", "uid=42")
		q.want("0 1s allowed", "1 1.25s allowed", "2 1.5s allowed")
	})
}

// While anyone waits, all other requests look for a line of theirs. In an attack these are most.
func TestWhoHasNoLineAllocatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, ThrottleConfig{MaxDelay: time.Minute})
		for i := range 3 {
			q.throttles(fmt.Sprint("rule-", i), "uid=42", time.Duration(3-i)*time.Second) // each is the one that decides when it comes
			q.ask(t.Context(), fmt.Sprint(i), "a", "uid=42")
			q.throttles(fmt.Sprint("rule-", i), "uid=42", 0, func(v *verdict.Verdict) { v.State = verdict.Clear })
		}
		if known := q.table.lines.rules.Load(); known == nil || len(*known) != 3 {
			t.Fatalf("%+v wait", known)
		}
		dims := []event.Dim{{Name: "uid", Value: "43"}}
		ctx, d := t.Context(), q.table.CheckDims("a", dims)
		if n := testrun.Allocs(100, func() { d = q.throttle.Await(ctx, d, "a", dims) }); n != 0 || !d.Allowed {
			t.Errorf("%v allocations, %+v", n, d)
		}
		q.all.Wait()
	})
}

func TestNobodyNewWaitsWhileEnforcementIsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, ThrottleConfig{MaxDelay: time.Minute})
		q.throttles("r", "uid=42", time.Second)
		q.ask(t.Context(), "0", "a", "uid=42")
		q.ask(t.Context(), "1", "a", "uid=42")
		q.table.SetEnabled(false)
		q.ask(t.Context(), "off", "a", "uid=42")
		q.want("off 0s allowed", "0 1s allowed", "1 1.25s allowed")
	})
}

// A negative bound never waits, in no line.
func TestNoThrottling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, ThrottleConfig{MaxDelay: time.Minute})
		q.throttles("r", "uid=42", time.Second)
		q.ask(t.Context(), "0", "a", "uid=42")
		q.ask(t.Context(), "1", "a", "uid=42")
		never, err := NewThrottle(q.table, -1, 0)
		if err != nil {
			t.Fatal(err)
		}
		dims := []event.Dim{{Name: "uid", Value: "42"}}
		if d := never.Await(t.Context(), q.table.CheckDims("a", dims), "a", dims); d.Allowed || never.Busy() {
			t.Errorf("%+v", d)
		}
		if d := q.throttle.AwaitWithin(t.Context(), -1, q.table.CheckDims("a", dims), "a", dims); d.Allowed {
			t.Errorf("%+v", d)
		}
		q.at(1100 * time.Millisecond)
		if d := never.Await(t.Context(), q.table.CheckDims("a", dims), "a", dims); !d.Allowed {
			t.Errorf("%+v", d)
		}
		q.want("0 1s allowed", "1 1.25s allowed")
	})
}

func TestThrottleConfigs(t *testing.T) {
	for _, cfg := range []ThrottleConfig{{MaxDelayed: -1}, {MaxDelayedPerKey: -1}} {
		if _, err := NewThrottleWith(newTable(t), cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
	if _, err := NewThrottle(nil, 0, 0); err == nil {
		t.Error("a throttle without a table")
	}
}

// The time that a request waits is the machine's own: when the wall's clock goes back meanwhile, the verdict ends later, not the wait.
func TestAWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := running(t, Config{})
		throttled := func(seq int64) []verdict.Verdict { // for a second from now
			return []verdict.Verdict{block("r", "uid=42", func(v *verdict.Verdict) {
				v.Action, v.Seq, v.Since, v.Until = verdict.ActThrottle, seq, now(), now()+event.Second
			})}
		}
		table.Replace(0, throttled(1))
		dims := []event.Dim{{Name: "uid", Value: "42"}}
		d := table.CheckDims("a", dims)
		go func() { // each end is another second away
			for n := range 100 {
				time.Sleep(900 * time.Millisecond)
				table.Apply(0, throttled(int64(n)+2))
			}
		}()
		began := time.Now()
		if got := table.Await(t.Context(), d, 5*time.Second, "a", dims); got.Allowed || time.Since(began) > 5*time.Second {
			t.Errorf("allowed: %v after %v, want a denial within 5 s", got.Allowed, time.Since(began))
		}
		time.Sleep(2 * time.Minute)
	})
}
