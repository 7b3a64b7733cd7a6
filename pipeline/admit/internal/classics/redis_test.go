package classics

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata" // as the rules have it, wherever this runs

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

const (
	millis = event.Millisecond
	minute = event.Minute
)

// store is a Redis of counters.
type store struct {
	counts map[string]int64
	ends   map[string]event.Micros
}

func newStore() *store { return &store{map[string]int64{}, map[string]event.Micros{}} }

func (s *store) incr(at event.Micros, key string, n int64) int64 {
	if end, ok := s.ends[key]; ok && at > end { // at its end a key is still there
		delete(s.counts, key)
		delete(s.ends, key)
	}
	s.counts[key] += n
	return s.counts[key]
}

// incrMinute is INCR user:<minute>, which is over when the minute is. As people write it, it counts
// what it denies, too.
type incrMinute struct {
	*store
	limit int64
}

func (l *incrMinute) admit(at event.Micros, n int64) bool {
	return l.incr(at, fmt.Sprint("user:", at.Time().Unix()/60), n) <= l.limit
}

// incrFirst is INCR user, and EXPIRE user 60 where it answered 1.
type incrFirst struct {
	*store
	limit int64
}

func (l *incrFirst) admit(at event.Micros, n int64) bool {
	count := l.incr(at, "user", n)
	if count == n {
		l.ends["user"] = at + minute
	}
	return count <= l.limit
}

func incrOfAMinute(t *testing.T, line string) {
	w := traffic{start: ten + 7*event.Second, requests: 250, gap: 3 * event.Second}
	same(t, w, func(rng *rand.Rand) (ours, theirs limiter) {
		return newBefore(t, line, rng), &incrMinute{newStore(), 20}
	})
	// What is denied counts there, if several are asked for at once.
	w.cost = 5
	more, less, _ := other(w, 1, func(rng *rand.Rand) (ours, theirs limiter) {
		return newBefore(t, line, rng), &incrMinute{newStore(), 20}
	})
	if more == 0 || less > more {
		t.Errorf("several at once: ours alone lets in %d, theirs alone %d", more, less)
	}
}

// The window begins there with the first request, and here with the minute.
func incrAndExpire(t *testing.T, line string) {
	pair := func(rng *rand.Rand) (ours, theirs limiter) {
		return newBefore(t, line, rng), &incrFirst{newStore(), 20}
	}
	same(t, traffic{start: ten, requests: 250, gap: 3 * event.Second}, pair)
	// What is denied counts there, if several are asked for at once.
	more, less, _ := other(traffic{start: ten, requests: 250, gap: 3 * event.Second, cost: 5}, 1, pair)
	if more == 0 || less > more {
		t.Errorf("several at once: ours alone lets in %d, theirs alone %d", more, less)
	}
}

// zset is ZREMRANGEBYSCORE key -inf <now - 60 s>, ZCARD, and ZADD if there is room; or ZADD first.
type zset struct {
	limit int
	first bool
	times []event.Micros
}

func (l *zset) admit(at event.Micros, n int64) bool {
	left := l.times[:0]
	for _, t := range l.times {
		if t > at-minute {
			left = append(left, t)
		}
	}
	l.times = left
	fits := len(l.times)+int(n) <= l.limit
	for range n {
		if fits || l.first {
			l.times = append(l.times, at)
		}
	}
	return fits
}

func setOfTimes(t *testing.T, line string) {
	w := traffic{start: ten, requests: 250, gap: 3 * event.Second, pause: 40 * event.Second, cost: 3}
	same(t, w, func(rng *rand.Rand) (ours, theirs limiter) { return newBefore(t, line, rng), &zset{limit: 20} })
	// To the µs: what was a minute ago is out, and what was a µs less is not.
	same(t, traffic{start: ten, requests: 250, gap: 5 * event.Second, grain: event.Second}, func(rng *rand.Rand) (ours, theirs limiter) {
		return newBefore(t, line, rng), &zset{limit: 20}
	})
	more, less, _ := other(w, 1, func(rng *rand.Rand) (ours, theirs limiter) {
		return newBefore(t, line, rng), &zset{limit: 20, first: true}
	})
	if more == 0 || less > 0 {
		t.Errorf("beside one that adds first: ours alone lets in %d, theirs alone %d", more, less)
	}
}

// blocks is a hash of counts by blocks of 5 s: those of the last minute are added up, with the
// block that the minute began in or without.
type blocks struct {
	limit int64
	many  int64
	hash  map[int64]int64
}

func (l *blocks) admit(at event.Micros, n int64) bool {
	now, total := int64(at/(5*event.Second)), n
	for block, count := range l.hash {
		if block > now-l.many {
			total += count
		} else {
			delete(l.hash, block)
		}
	}
	if total > l.limit {
		return false
	}
	l.hash[now] += n
	return true
}

var blockTraffic = traffic{start: ten, requests: 350, gap: event.Second, pause: 30 * event.Second, cost: 8}

func hashOfBlocks(t *testing.T, line string) {
	same(t, blockTraffic, func(rng *rand.Rand) (ours, theirs limiter) {
		return newBefore(t, line, rng), &blocks{100, 12, map[int64]int64{}}
	})
}

func hashOfBlocksAndOne(t *testing.T, line string) {
	same(t, blockTraffic, func(rng *rand.Rand) (ours, theirs limiter) {
		return newBefore(t, line, rng), &blocks{100, 13, map[int64]int64{}}
	})
	more, less, _ := other(blockTraffic, 1, func(rng *rand.Rand) (ours, theirs limiter) {
		return newBefore(t, line, rng), &blocks{100, 12, map[int64]int64{}}
	})
	if less == 0 {
		t.Errorf("beside twelve blocks: ours alone lets in %d, theirs alone %d", more, less)
	}
}

// gcra is CL.THROTTLE key 19 100 60, as redis-cell's source has it, in µs.
type gcra struct{ tat event.Micros }

func (l *gcra) fits(at event.Micros, n int64) (tat event.Micros, ok bool) {
	const interval, maxBurst = 600 * millis, 19
	tat = max(l.tat, at) + event.Micros(n)*interval
	return tat, at >= tat-(maxBurst+1)*interval
}

func (l *gcra) admit(at event.Micros, n int64) bool {
	tat, ok := l.fits(at, n)
	if ok {
		l.tat = tat
	}
	return ok
}

// Here a strict bucket rounds up what is in it, by a millionth of a request for each that is in it.
func redisCell(t *testing.T, line string) {
	w := traffic{start: ten, requests: 300, gap: 700 * millis, pause: 10 * event.Second, cost: 2}
	waits, admitted := 0, 0
	for _, seed := range seeds {
		rng := rngOf(seed)
		ours, theirs := newBefore(t, line, rng), &gcra{}
		w.each(rng, func(i int, at event.Micros, n int64) {
			got := ours.admit(at, n)
			tat, want := theirs.fits(at, n)
			_, early := theirs.fits(at-millis, n)
			if got != want && (got || early) {
				t.Fatalf("seed %d, request %d, %v, %d at once: ours %t, theirs %t", seed, i, (at - ten).Duration(), n, got, want)
			}
			if got {
				theirs.tat = tat
				admitted++
			} else {
				waits++
			}
		})
	}
	if admitted < 100 || waits < 100 {
		t.Errorf("%d were let in, %d denied", admitted, waits)
	}
}

// spring is request_rate_limiter.lua: whole seconds.
type spring struct{ rate, capacity, tokens, last int64 }

func (l *spring) admit(at event.Micros, n int64) bool {
	now := int64(at / event.Second)
	l.tokens = min(l.capacity, l.tokens+max(0, now-l.last)*l.rate)
	l.last = now
	if l.tokens < n {
		return false
	}
	l.tokens -= n
	return true
}

func springs(t *testing.T, line string) {
	// Where requests come at whole seconds, they are the same. Ours rounds up what is in it: each
	// request comes 10 µs later than a whole second behind the one before.
	w := traffic{start: ten, requests: 300, gap: 300 * millis}
	pair := func(rng *rand.Rand) (ours, theirs limiter) {
		return newBefore(t, line, rng), &spring{rate: 2, capacity: 8, tokens: 8}
	}
	same(t, traffic{start: ten, requests: 300, gap: 2 * event.Second, grain: event.Second, cost: 4}, func(rng *rand.Rand) (ours, theirs limiter) {
		ours, theirs = pair(rng)
		return &later{limiter: ours}, theirs
	})
	more, less, admitted := other(w, 1, pair)
	if more == 0 || less == 0 || more-less > admitted/10 {
		t.Errorf("of %d ours alone lets in %d, theirs alone %d", admitted, more, less)
	}
}

// later asks a little later each time.
type later struct {
	limiter
	by event.Micros
}

func (l *later) admit(at event.Micros, n int64) bool {
	l.by += 10
	return l.limiter.admit(at+l.by, n)
}

// reserve is DECR, and INCR where the action fails; filled up with each day.
type reserve struct{ day, left int64 }

func (l *reserve) admit(at event.Micros, n int64) bool {
	if day := int64(at / event.Day); day != l.day {
		l.day, l.left = day, 30
	}
	if l.left -= n; l.left >= 0 {
		return true
	}
	l.left += n
	return false
}

func stock(t *testing.T, line string) {
	same(t, traffic{start: ten, requests: 300, gap: 8 * minute, cost: 3}, func(rng *rand.Rand) (ours, theirs limiter) {
		b, l := newBefore(t, line, rng), &reserve{}
		b.settles = 3
		b.ended = func(n int64, counts bool) {
			if !counts {
				l.left += n
			}
		}
		return b, l
	})
}

// cycleOf counts from one midnight to the next.
type cycleOf struct {
	zone  *time.Location
	day   string
	count int64
}

func (l *cycleOf) admit(at event.Micros, n int64) bool {
	if day := at.Time().In(l.zone).Format(time.DateOnly); day != l.day {
		l.day, l.count = day, 0
	}
	if l.count+n > 20 {
		return false
	}
	l.count += n
	return true
}

func cycle(t *testing.T, line string) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	same(t, traffic{start: ten, requests: 150, gap: 30 * minute, cost: 2}, func(rng *rand.Rand) (ours, theirs limiter) {
		return newBefore(t, line, rng), &cycleOf{zone: zone}
	})
}

// kongs increments only what it lets in.
type kongs struct {
	period event.Micros
	limit  int64
	counts map[event.Micros]int64
}

func (l *kongs) admit(at event.Micros, n int64) bool {
	period := at / l.period
	if l.counts[period]+n > l.limit {
		return false
	}
	l.counts[period] += n
	return true
}

func envoyGlobal(t *testing.T, line string) {
	same(t, traffic{start: ten, requests: 250, gap: 3 * event.Second}, func(rng *rand.Rand) (ours, theirs limiter) {
		return newBefore(t, line, rng), &incrMinute{newStore(), 20}
	})
}

func kong(t *testing.T, line string) {
	same(t, traffic{start: ten, requests: 250, gap: 3 * event.Second, cost: 3}, func(rng *rand.Rand) (ours, theirs limiter) {
		return newBefore(t, line, rng), &kongs{minute, 20, map[event.Micros]int64{}}
	})
}

// setOfHolders: ZREMRANGEBYSCORE key -inf <now - 30 s>, ZCARD, ZADD; ZREM at the end.
func setOfHolders(t *testing.T, line string) {
	for _, seed := range seeds {
		rng := rngOf(seed)
		b := newBefore(t, line, rng)
		type holder struct {
			at   event.Micros
			done func()
		}
		var holders []holder
		admitted, denied, expired, done := 0, 0, 0, uint64(0)
		(&traffic{start: ten, requests: 200, gap: 8 * event.Second, grain: event.Second}).each(rng, func(i int, at event.Micros, _ int64) {
			left := holders[:0]
			for _, h := range holders {
				if h.at > at-30*event.Second {
					left = append(left, h)
				} else {
					expired++
				}
			}
			holders = left
			want := len(holders) < 3
			p := b.permit(at, 1)
			if p.Admitted != want {
				t.Fatalf("seed %d, request %d, %v: ours %t, theirs %t", seed, i, (at - ten).Duration(), p.Admitted, want)
			}
			if denied++; want {
				denied--
				admitted++
				holders = append(holders, holder{at, func() { p.Done("success") }})
			}
			if len(holders) > 0 && rng.IntN(3) == 0 {
				n := rng.IntN(len(holders))
				holders[n].done()
				holders = append(holders[:n], holders[n+1:]...)
				done++
				testrun.Eventually(t, "it is given back", func() bool { return b.admitter.Stats().Cancelled >= done })
			}
		})
		if admitted < 20 || denied < 20 || expired < 5 {
			t.Errorf("%d were let in, %d denied, %d left by themselves", admitted, denied, expired)
		}
	}
}
