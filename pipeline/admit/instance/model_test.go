package instance_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/instance"
	"github.com/tallygate/tallygate/pipeline/admit/standing"
)

// naive is a limit as a textbook has it: it remembers all that it let in.
type naive interface {
	fits(at event.Micros, n int64) bool // changes nothing
	add(at event.Micros, n int64)
}

type took struct {
	at event.Micros
	n  int64
}

// log counts what a window holds that may go by all that was let in before.
type log struct {
	limit int64
	in    func(was, now event.Micros, all []took, i int) bool
	all   []took
}

func (l *log) fits(at event.Micros, n int64) bool {
	for i, t := range l.all {
		if l.in(t.at, at, l.all, i) {
			n += t.n
		}
	}
	return n <= l.limit
}

func (l *log) add(at event.Micros, n int64) { l.all = append(l.all, took{at, n}) }

// tokens is a token bucket, in exact fractions.
type tokens struct {
	rate, burst *big.Rat // a µs; at most
	left        *big.Rat
	last        event.Micros
}

func (b *tokens) at(now event.Micros) *big.Rat {
	left := new(big.Rat).Mul(b.rate, new(big.Rat).SetInt64(int64(now-b.last)))
	if left.Add(left, b.left); left.Cmp(b.burst) > 0 {
		left.Set(b.burst)
	}
	return left
}

func (b *tokens) fits(at event.Micros, n int64) bool {
	return b.at(at).Cmp(new(big.Rat).SetInt64(n)) >= 0
}

func (b *tokens) add(at event.Micros, n int64) {
	b.left, b.last = new(big.Rat).Sub(b.at(at), new(big.Rat).SetInt64(n)), at
}

const modelRules = `    - {name: sliding, match: {api: x}, limit: 7, per: 10s, scope: instance}
    - {name: tumbling, key: [], match: {api: "*"}, window: tumbling, limit: 30, per: 5s, offset: 2s, scope: instance}
    - {name: bucket, key: [uid, api], match: {api: {x: 2, y: 1}}, window: bucket, limit: 70, per: 60s, burst: 9, scope: instance}
    - {name: session, match: {api: y}, window: session, gap: 3s, limit: 20, scope: instance}
    - {name: calendar, match: {api: y}, window: calendar, per: hour, limit: 300, scope: instance}
    - {name: hopping, match: {api: y}, window: hopping, per: 12s, every: 3s, offset: 1s, limit: 12, scope: instance}
    - {name: first, match: {api: y}, window: from-first, per: 7s, limit: 15, scope: instance}
    - {name: at-once, match: {api: [x, y]}, window: in-flight, limit: 4, scope: instance}
`

// models are the same rules, for one uid.
func models() map[string]naive {
	out := map[string]naive{
		"sliding": &log{limit: 7, in: func(was, now event.Micros, _ []took, _ int) bool { return was > now-10*event.Second }},
		"tumbling": &log{limit: 30, in: func(was, now event.Micros, _ []took, _ int) bool {
			return (was-2*event.Second)/(5*event.Second) == (now-2*event.Second)/(5*event.Second)
		}},
		"calendar": &log{limit: 300, in: func(was, now event.Micros, _ []took, _ int) bool { return was/event.Hour == now/event.Hour }},
		"hopping": &log{limit: 12, in: func(was, now event.Micros, _ []took, _ int) bool {
			return (was-event.Second)/(3*event.Second) > (now-event.Second)/(3*event.Second)-4
		}},
		"first": &log{limit: 15, in: func(_, now event.Micros, all []took, i int) bool {
			start := all[0].at
			for _, one := range all[:i+1] {
				if one.at >= start+7*event.Second {
					start = one.at
				}
			}
			for _, one := range all[i+1:] {
				if one.at >= start+7*event.Second {
					return false
				}
			}
			return now < start+7*event.Second
		}},
		"session": &log{limit: 20, in: func(_, now event.Micros, all []took, i int) bool {
			for ; i < len(all)-1; i++ {
				if all[i+1].at-all[i].at >= 3*event.Second {
					return false
				}
			}
			return now-all[i].at < 3*event.Second
		}},
	}
	for _, api := range []string{"x", "y"} {
		out["bucket "+api] = &tokens{rate: big.NewRat(70, int64(60*event.Second)), burst: big.NewRat(9, 1), left: big.NewRat(9, 1), last: noon}
	}
	return out
}

// part of a request under one of the models.
type asked struct {
	model string
	n     int64
}

func asks(api string, cost int64) []asked {
	switch api {
	case "x":
		return []asked{{"sliding", cost}, {"tumbling", cost}, {"bucket x", 2 * cost}}
	case "y":
		return []asked{{"tumbling", cost}, {"bucket y", cost}, {"session", cost}, {"calendar", cost}, {"hopping", cost}, {"first", cost}}
	}
	return []asked{{"tumbling", cost}}
}

// Each window lets in what a textbook's limiter does, and no request counts in one of them only; who is
// denied is let in after RetryAfter, and not a µs sooner, if nothing else happens.
func TestWindowsAreThoseOfTextbooks(t *testing.T) {
	oneGoroutine(t)
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 3))
	b := newBench(t, modelRules)
	users := []map[string]naive{models(), models(), models()}
	for _, m := range users[1:] { // all together
		m["tumbling"] = users[0]["tumbling"]
	}
	under := make([]int64, len(users))
	type held struct {
		user int
		n    int64
		*instance.Permit
	}
	var permits []held
	var denied, waits int
	for i := range 60_000 {
		b.now += event.Micros(r.Int64N(int64(100 * event.Millisecond)))
		if r.IntN(50) == 0 {
			b.now += event.Micros(r.Int64N(int64(5 * event.Second)))
		}
		if len(permits) > 0 && r.IntN(3) > 0 {
			p := permits[0]
			permits = permits[1:]
			under[p.user] -= p.n
			p.Done()
		}
		user, api, cost := r.IntN(len(users)), []string{"x", "y", "y", "z"}[r.IntN(4)], int64(1+r.IntN(3)/2)
		fits := func(at event.Micros) bool {
			for _, a := range asks(api, cost) {
				if !users[user][a.model].fits(at, a.n) {
					return false
				}
			}
			return api == "z" || under[user]+cost <= 4
		}
		e := request(api, fmt.Sprint("u", user))
		e.Cost = event.Decimal(cost) * event.One
		got, permit := b.Admit(e)
		if got.Allowed != fits(b.now) {
			t.Fatalf("seed %d, request %d: %s of %s, cost %d: %s", seed, i, api, e.UID, cost, says(got))
		}
		if got.Allowed {
			for _, a := range asks(api, cost) {
				users[user][a.model].add(b.now, a.n)
			}
			if api != "z" {
				under[user] += cost
				permits = append(permits, held{user, cost, permit})
			}
			continue
		}
		denied++
		if n := got.Numbers; n.RetryAfter > 0 && n.RetryAfter != standing.Never && (api == "z" || under[user]+cost <= 4) {
			waits++
			if at := b.now + event.Micros(n.RetryAfter.Microseconds()); !fits(at) || fits(at-1) {
				t.Fatalf("seed %d, request %d: %s: after that %t, a µs sooner %t", seed, i, says(got), fits(at), fits(at-1))
			}
		}
		if i%2000 == 0 { // what is long over matters no more
			for _, m := range users {
				for _, model := range m {
					if l, ok := model.(*log); ok && len(l.all) > 1000 && l.limit != 300 {
						l.all = l.all[len(l.all)-500:]
					}
				}
			}
		}
	}
	if denied < 5000 || waits < 2000 {
		t.Errorf("%d were denied, %d of them to wait", denied, waits)
	}
}

// The rate and burst of a bucket that warms up, in steps of 50 µs: what is in it drains at share(w) of the
// rate, and w grows while there is something in it, and falls while there is nothing.
type warming struct{ rate, burst, from, whole, used, level float64 }

const step event.Micros = 50

func (w *warming) share() float64 { return w.from + (1-w.from)*w.used/w.whole }

func (w *warming) step() {
	if w.level > 0 {
		w.level = max(w.level-w.rate*w.share()*float64(step), 0)
		w.used = min(w.used+float64(step), w.whole)
		return
	}
	w.used = max(w.used-float64(step), 0)
}

func (w *warming) admit() bool {
	if w.level+1 > max(w.burst*w.share(), 1) {
		return false
	}
	w.level++
	return true
}

// Requests, many, few, none, and many again: the same number is let in each second.
func TestABucketWarmsUp(t *testing.T) {
	b := newBench(t, "    - {name: w, key: [], match: {api: x}, window: bucket, limit: 200, per: 1s, burst: 20, warm_up: {time: 10s, from: 25%}, scope: instance}\n")
	model := warming{rate: 200.0 / 1e6, burst: 20, from: 0.25, whole: 10e6}
	e := request("x", "")
	seconds := []int{}
	for second := range 60 {
		every := map[int]event.Micros{0: event.Millisecond, 1: event.Millisecond, 2: 10 * event.Millisecond, 3: 0, 4: event.Millisecond, 5: 50 * event.Millisecond}[second/10]
		got, want := 0, 0
		for at := event.Micros(0); at < event.Second; at += step {
			if every > 0 && at%every == 0 {
				if r, _ := b.Admit(e); r.Allowed {
					got++
				}
				if model.admit() {
					want++
				}
			}
			b.now += step
			model.step()
		}
		if got < want-2 || got > want+2 {
			t.Errorf("second %d: %d were let in, the model lets in %d", second, got, want)
		}
		seconds = append(seconds, got)
	}
	t.Log(seconds)
	// By hand: in the first 10 s 5 at once, and (25% + 100%)/2 of 10 s × 200; then the whole rate.
	sum := func(from, to int) (n int) {
		for _, s := range seconds[from:to] {
			n += s
		}
		return n
	}
	for _, c := range []struct{ from, to, want, off int }{{0, 10, 1250 + 20, 10}, {10, 20, 2000, 10}, {40, 50, 1250 + 20, 10}} {
		if n := sum(c.from, c.to); n < c.want-c.off || n > c.want+c.off {
			t.Errorf("seconds %d to %d: %d, want %d", c.from, c.to, n, c.want)
		}
	}
}

// RetryAfter of a bucket that is warming up is never too short, and no longer than the burst's growth.
func TestRetryAfterWhileWarmingUp(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 8))
	b := newBench(t, "    - {name: w, key: [], match: {api: x}, window: bucket, limit: 10, per: 1s, burst: 12, warm_up: {time: 20s, from: 20%}, scope: instance}\n")
	waits := 0
	for range 5000 {
		e := request("x", "")
		e.Cost = event.Decimal(1+r.IntN(6)) * event.One
		res, _ := b.Admit(e)
		if res.Allowed {
			b.now += event.Micros(r.Int64N(int64(300 * event.Millisecond)))
			continue
		}
		waits++
		b.now += event.Micros(res.Numbers.RetryAfter.Microseconds())
		if again, _ := b.Admit(e); !again.Allowed {
			t.Fatalf("%s: after it %s", says(res), says(again))
		}
	}
	if waits < 500 {
		t.Errorf("%d waits", waits)
	}
}

// guava is SmoothRateLimiter.SmoothWarmingUp of Guava 33, of which a permit is taken only when it is there.
type guava struct{ stable, slope, threshold, most, coolDown, stored, next float64 }

func newGuava(rate, warmup, cold float64) *guava {
	g := &guava{stable: 1 / rate, threshold: 0.5 * warmup * rate}
	g.most = g.threshold + 2*warmup/(g.stable+cold*g.stable)
	g.slope = (cold*g.stable - g.stable) / (g.most - g.threshold)
	g.coolDown, g.stored = warmup/g.most, g.most
	return g
}

func (g *guava) tryAcquire(now float64) bool {
	if g.next > now {
		return false
	}
	g.stored = min(g.most, g.stored+(now-g.next)/g.coolDown) // resync
	g.next = now
	above := max(g.stored-g.threshold, 0)
	interval := g.stable + above*g.slope
	if g.stored < 1 {
		interval = g.stable
	}
	g.stored = max(g.stored-1, 0)
	g.next += interval
	return true
}

// Guava's limiter and this one begin at one rate, are at the whole one after the same time, and are cold again
// after as long without requests. In between this one is faster: see warmth.
func TestItWarmsUpAsLongAsGuavas(t *testing.T) {
	oneGoroutine(t)
	b := newBench(t, "    - {name: w, key: [], match: {api: x}, window: bucket, limit: 100, per: 1s, burst: 1, warm_up: {time: 10s, from: 33.3333%}, scope: instance}\n")
	g := newGuava(100, 10, 3)
	e := request("x", "")
	start := b.now
	var ours, theirs [50]int
	for second := range ours {
		for at := event.Micros(0); at < event.Second; at += 100 {
			if idle := second >= 20 && second < 30; !idle {
				if r, _ := b.Admit(e); r.Allowed {
					ours[second]++
				}
				if g.tryAcquire(float64(b.now-start) / 1e6) {
					theirs[second]++
				}
			}
			b.now += 100
		}
	}
	for _, second := range []int{0, 11, 19, 30, 41, 49} { // cold, warm, warm; and after 10 s without requests
		if d := ours[second] - theirs[second]; d < -5 || d > 5 {
			t.Errorf("second %d: %d, and Guava's limiter lets in %d", second, ours[second], theirs[second])
		}
	}
	for second := range 10 {
		if ours[second] < theirs[second]-2 {
			t.Errorf("second %d: %d, and Guava's limiter lets in more: %d", second, ours[second], theirs[second])
		}
	}
	t.Log(ours, theirs)
}

// oneGoroutine skips what has nothing that could race, and is long: the fast suite runs it.
func oneGoroutine(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine has no races; this is for the fast suite")
	}
}
