package classics

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"

	"golang.org/x/time/rate"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/instance"
)

var address = netip.MustParseAddr("192.0.2.1")

// atOnceHere is a semaphore: resilience4j's Bulkhead, Hystrix', limit_conn.
func atOnceHere(t *testing.T, line string) {
	for _, seed := range seeds {
		rng := rngOf(seed)
		ours, denied := newHere(t, line), 0
		var held []*instance.Permit
		for i := range 3000 {
			if len(held) > 0 && rng.IntN(21) < 10 {
				n := rng.IntN(len(held))
				held[n].Done()
				held = append(held[:n], held[n+1:]...)
				continue
			}
			got, p := ours.permit(ten+event.Micros(i)*millis, 1)
			if want := len(held) < 10; got != want {
				t.Fatalf("seed %d, step %d: ours %t with %d under way", seed, i, got, len(held))
			}
			if denied++; got {
				denied--
				held = append(held, p)
			}
		}
		if denied < 100 {
			t.Errorf("seed %d: %d denied", seed, denied)
		}
	}
}

func kongHere(t *testing.T, line string) {
	same(t, traffic{start: ten, requests: 3000, gap: 3 * minute, cost: 3}, func(*rand.Rand) (ours, theirs limiter) {
		return newHere(t, line), &kongs{event.Hour, 20, map[event.Micros]int64{}}
	})
}

// tokens is a token bucket in units of a rate of 1 a µs, so that it is exact: as newer Envoys have
// it.
type tokens struct {
	each, most, left event.Micros
	last             event.Micros
}

func (l *tokens) admit(at event.Micros, n int64) bool {
	l.left = min(l.most, l.left+at-l.last)
	l.last = at
	if l.left < event.Micros(n)*l.each {
		return false
	}
	l.left -= event.Micros(n) * l.each
	return true
}

func envoyLocal(t *testing.T, line string) {
	w := traffic{start: ten, requests: 3000, gap: 20 * millis, pause: event.Second, cost: 3}
	same(t, w, func(*rand.Rand) (ours, theirs limiter) {
		return newHere(t, line), &tokens{each: 10 * millis, most: event.Second, left: event.Second, last: ten}
	})
	// Older ones fill up once in a fill_interval.
	more, less, _ := other(w, 1, func(*rand.Rand) (ours, theirs limiter) {
		return newHere(t, line), &cycles{limit: 100, period: event.Second, since: ten + 300*millis}
	})
	if more == 0 || less == 0 {
		t.Errorf("ours alone lets in %d, theirs alone %d", more, less)
	}
}

// limitReq is ngx_http_limit_req_lookup: ms, and thousandths of requests.
type limitReq struct {
	rate, burst, excess int64
	last                int64
	known               bool
}

func (l *limitReq) admit(at event.Micros, _ int64) bool {
	now := int64(at / millis)
	if !l.known {
		l.known, l.last = true, now
		return true
	}
	excess := max(0, l.excess-l.rate*(now-l.last)/1000+1000)
	if excess > l.burst*1000 {
		return false
	}
	l.excess, l.last = excess, now
	return true
}

func nginxRequests(t *testing.T, line string) {
	same(t, traffic{start: ten, requests: 3000, gap: 100 * millis, pause: 2 * event.Second, grain: millis}, func(*rand.Rand) (ours, theirs limiter) {
		return newHere(t, line), &limitReq{rate: 10_000, burst: 20}
	})
}

// smoothBursty is Guava's SmoothRateLimiter.SmoothBursty, tryAcquire(n) without a timeout, in µs.
type smoothBursty struct {
	interval, stored, most float64
	next                   event.Micros
}

func (l *smoothBursty) admit(at event.Micros, n int64) bool {
	if l.next > at {
		return false
	}
	l.stored = min(l.most, l.stored+float64(at-l.next)/l.interval) // resync
	l.next = at
	spend := min(float64(n), l.stored)
	l.stored -= spend
	l.next += event.Micros((float64(n) - spend) * l.interval)
	return true
}

// Times are multiples of an eighth of the interval, so that floating point is exact.
func guavas(t *testing.T, line string) {
	w := traffic{start: ten, requests: 3000, gap: 300 * millis, pause: 3 * event.Second, grain: 25 * millis}
	pair := func(*rand.Rand) (ours, theirs limiter) {
		return newHere(t, line), &smoothBursty{interval: 200_000, most: 5, next: ten - event.Second}
	}
	same(t, w, pair)
	w.cost = 4 // a large one passes at once there, and the next one pays
	more, less, _ := other(w, 1, pair)
	if more == 0 || less == 0 {
		t.Errorf("several at once: ours alone lets in %d, theirs alone %d", more, less)
	}
	// A new one is empty there, and full here.
	ours, theirs := newHere(t, line), &smoothBursty{interval: 200_000, most: 5, next: ten}
	if a, b := perSecond(ours, ten, 1)[0], perSecond(theirs, ten, 1)[0]; a != b+5 {
		t.Errorf("in the first second ours lets in %d, theirs %d", a, b)
	}
}

// goRate is that of golang.org/x/time/rate itself. Its numbers are floating point: times are
// multiples of an eighth of its interval.
type xTime struct{ *rate.Limiter }

func (l xTime) admit(at event.Micros, n int64) bool { return l.AllowN(at.Time(), int(n)) }

func goRate(t *testing.T, line string) {
	same(t, traffic{start: ten, requests: 3000, gap: 200 * millis, pause: 3 * event.Second, grain: 25 * millis / 2, cost: 3}, func(*rand.Rand) (ours, theirs limiter) {
		return newHere(t, line), xTime{rate.NewLimiter(10, 20)}
	})
}

// cycles is resilience4j's AtomicRateLimiter without waiting: permissions are renewed at the
// beginning of each cycle since the limiter was made.
type cycles struct {
	limit         int64
	period, since event.Micros
	cycle         event.Micros
	left          int64
	made          bool
}

func (l *cycles) admit(at event.Micros, n int64) bool {
	cycle := (at - l.since) / l.period
	if !l.made || cycle != l.cycle {
		l.made, l.cycle, l.left = true, cycle, l.limit
	}
	if l.left < n {
		return false
	}
	l.left -= n
	return true
}

func resilience(t *testing.T, line string) {
	w := traffic{start: ten, requests: 3000, gap: 30 * millis, cost: 3}
	same(t, w, func(*rand.Rand) (ours, theirs limiter) {
		return newHere(t, line), &cycles{limit: 20, period: 500 * millis, since: ten}
	})
	more, less, _ := other(w, 1, func(*rand.Rand) (ours, theirs limiter) {
		return newHere(t, line), &cycles{limit: 20, period: 500 * millis, since: ten - 123*millis}
	})
	if more == 0 || less == 0 {
		t.Errorf("one that was made between two edges: ours alone lets in %d, theirs alone %d", more, less)
	}
}

// statItem is Dubbo's StatItem: its interval begins with the first call behind the one before.
type statItem struct {
	last event.Micros
	left int64
}

func (l *statItem) admit(at event.Micros, _ int64) bool {
	if at > l.last+minute {
		l.last, l.left = at, 20
	}
	if l.left <= 0 {
		return false
	}
	l.left--
	return true
}

func dubbo(t *testing.T, line string) {
	same(t, traffic{start: ten, requests: 3000, gap: 3 * event.Second}, func(*rand.Rand) (ours, theirs limiter) { return newHere(t, line), &statItem{} })
}

// leapArray is Sentinel's statistics of a second, of two buckets of 500 ms, and its default
// controller.
type leapArray struct {
	start, pass [2]int64
	limit       int64
}

func (l *leapArray) admit(at event.Micros, n int64) bool {
	now := int64(at / millis)
	slot, start := now/500%2, now-now%500
	if l.start[slot] != start {
		l.start[slot], l.pass[slot] = start, 0
	}
	total := n
	for i := range l.start {
		if now-l.start[i] <= 1000 {
			total += l.pass[i]
		}
	}
	if total > l.limit {
		return false
	}
	l.pass[slot] += n
	return true
}

func sentinelQPS(t *testing.T, line string) {
	same(t, traffic{start: ten, requests: 3000, gap: 80 * millis, pause: 3 * event.Second, grain: millis, cost: 2}, func(*rand.Rand) (ours, theirs limiter) {
		return newHere(t, line), &leapArray{limit: 20}
	})
}

// paramFlow is Sentinel's ParamFlowChecker.passDefaultLocalCheck: tokens come back once more than
// the whole duration has passed since they did last.
type paramFlow struct {
	count, most, left int64
	last              int64
}

func (l *paramFlow) admit(at event.Micros, n int64) bool {
	now := int64(at / millis)
	if l.last == 0 {
		l.last, l.left = now, l.most-n
		return true
	}
	if passed := now - l.last; passed > 1000 {
		left := min(l.most, l.left+passed*l.count/1000) - n
		if left < 0 {
			return false
		}
		l.left, l.last = left, now
		return true
	}
	if l.left < n {
		return false
	}
	l.left -= n
	return true
}

func sentinelHot(t *testing.T, line string) {
	newTheirs := func() *paramFlow { return &paramFlow{count: 20, most: 30} }
	more, less, _ := other(traffic{start: ten, requests: 3000, gap: 80 * millis, grain: millis}, 1, func(*rand.Rand) (ours, theirs limiter) {
		return newHere(t, line), newTheirs()
	})
	if more == 0 {
		t.Errorf("ours alone lets in %d, theirs alone %d", more, less)
	}
	// In a flood: the same at once, and the same in the long run.
	our, their := newHere(t, line), newTheirs()
	for i := range 40 {
		if got, want := our.admit(ten, 1), their.admit(ten, 1); got != want {
			t.Errorf("%d at once: ours %t, theirs %t", i+1, got, want)
		}
	}
	ours, theirs := perSecond(newHere(t, line), ten, 60), perSecond(newTheirs(), ten, 60)
	if a, b := sum(ours), sum(theirs); math.Abs(float64(a-b)) > 45 {
		t.Errorf("in a minute's flood ours lets in %d, theirs %d", a, b)
	}
}
