package windows_test

import (
	"encoding/binary"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/windows"
)

func bucketOf(limit event.Decimal, per event.Micros) windows.Spec {
	return windows.Spec{Kind: windows.Bucket, Limit: limit, Per: per}
}

func TestABucketLetsBurstPassAndThenItsRate(t *testing.T) {
	c := newCounter(t, bucketOf(3*event.One, event.Second)) // 3 a second, 5 at once
	start := at("2026-11-21T10:00:00Z")
	c.counts(start, 5, 5)
	c.isBelow(5, start+333_334) // a third of a second, rounded up
	if got := c.add(start+333_334, 0).Count; got != 4*event.One-2 {
		t.Errorf("the level is %v, want 3.999998", got)
	}
	c.isBelow(5, start+333_334)
	c.isSpent(start + 1_666_667)
}

func TestABucketMayBeOverdrawn(t *testing.T) {
	c := newCounter(t, bucketOf(event.One, event.Second))
	start := at("2026-11-21T10:00:00Z")
	c.counts(start, 100, 100)
	c.isBelow(10, start+91*event.Second)
}

// Eleven million events at once are a debt of one more burst, not of a hundred days.
func TestABucketsDebtIsBounded(t *testing.T) {
	spec := bucketOf(60*event.One, event.Minute)
	c := newCounter(t, spec) // of a time when there was no bound
	start := at("2026-11-21T10:00:00Z")
	c.counts(start, 11_000_000, 11_000_000)
	c.spec.Most = 120 * event.One
	c.isBelow(60, start+61*event.Second)
	c.isSpent(start + 2*event.Minute)
	c.counts(start+event.Second, 5, 120)
	c.isBelow(60, start+62*event.Second)
}

func TestABucketTakesAnyLateEvent(t *testing.T) {
	c := newCounter(t, bucketOf(event.One, event.Second))
	start := at("2026-11-21T10:00:00Z")
	c.counts(start, 1, 1)
	c.counts(start-event.Day, 2, 3)
}

// What is kept is the level, not a time: another limit drains it at another rate.
func TestAChangedLimitGoesOnFromTheLevelThereIs(t *testing.T) {
	c := newCounter(t, bucketOf(event.One, event.Second))
	start := at("2026-11-21T10:00:00Z")
	c.counts(start, 10, 10)
	c.spec.Limit = 2 * event.One
	if got := c.spec.CountAt(c.state, start+event.Second); got != 8*event.One {
		t.Errorf("after a second at two a second: %v, want 8", got)
	}
}

// x/time/rate counts in floating point: with these rates and times it is exact as well.
func TestBucketEqualsTimeRate(t *testing.T) {
	for seed := range uint64(testrun.Depth(500)) {
		r := rand.New(rand.NewPCG(seed, 1))
		limit, burst := int64(1)<<r.IntN(7), int64(1+r.IntN(40))
		spec := bucketOf(event.Decimal(limit)*event.One, event.Second)
		limiter := rate.NewLimiter(rate.Limit(limit), int(burst))
		start := at("2026-11-21T10:00:00Z")
		var state []byte
		now := start
		for step := range 200 {
			now += event.Micros(r.IntN(40)) * event.Second / 64
			n := int64(1 + r.IntN(3))
			allowed := limiter.AllowN(now.Time(), int(n))
			level := event.Decimal(0)
			if len(state) > 0 {
				level = spec.CountAt(state, now)
			}
			if fits := level+event.Decimal(n)*event.One <= event.Decimal(burst)*event.One; fits != allowed {
				t.Fatalf("rand.NewPCG(%d, 1), step %d: %d of %d at %d a second, level %v: allowed %v, want %v",
					seed, step, n, burst, limit, level, fits, allowed)
			}
			if allowed {
				state, _ = spec.Add(state, now, event.Decimal(n)*event.One)
			}
		}
	}
}

// throttled is redis-cell's answer to CL.THROTTLE key maxBurst count period quantity: limited, limit,
// remaining, seconds until a retry (-1: now), seconds until all is back. All follow from a level.
func throttled(spec *windows.Spec, state []byte, maxBurst int64, now event.Micros, quantity int64) ([]byte, [5]int64) {
	limit := maxBurst + 1
	level := event.Decimal(0)
	if len(state) > 0 {
		level = spec.CountAt(state, now)
	}
	answer := [5]int64{0, limit, 0, -1, 0}
	if want := level + event.Decimal(quantity)*event.One; want > event.Decimal(limit)*event.One {
		answer[0] = 1
		if quantity <= limit {
			ready := spec.Below(state, event.Decimal(limit-quantity+1)*event.One)
			answer[3] = int64((ready - now) / event.Second)
		}
	} else {
		state, _ = spec.Add(state, now, event.Decimal(quantity)*event.One)
		level = want
	}
	answer[2] = int64((event.Decimal(limit)*event.One - level) / event.One)
	if len(state) > 0 {
		_, full := spec.Bounds(state, now)
		answer[4] = int64((full - now) / event.Second)
	}
	return state, answer
}

// The answers are those of redis-cell's README (CL.THROTTLE user123 15 30 60 1) and what its
// algorithm makes of the same command again and again.
func TestBucketAnswersAsRedisCell(t *testing.T) {
	spec := bucketOf(30*event.One, time60)
	now := at("2026-11-21T10:00:00Z")
	var state []byte
	for i, tt := range []struct {
		wait     event.Micros
		quantity int64
		want     [5]int64
	}{
		{0, 1, [5]int64{0, 16, 15, -1, 2}},
		{0, 1, [5]int64{0, 16, 14, -1, 4}},
		{0, 14, [5]int64{0, 16, 0, -1, 32}},
		{0, 1, [5]int64{1, 16, 0, 2, 32}},
		{0, 3, [5]int64{1, 16, 0, 6, 32}},
		{0, 17, [5]int64{1, 16, 0, -1, 32}}, // never
		{event.Second, 1, [5]int64{1, 16, 0, 1, 31}},
		{event.Second, 1, [5]int64{0, 16, 0, -1, 32}},
		{32 * event.Second, 0, [5]int64{0, 16, 16, -1, 0}}, // only asks
	} {
		now += tt.wait
		var got [5]int64
		if state, got = throttled(&spec, state, 15, now, tt.quantity); got != tt.want {
			t.Errorf("command %d: %v, want %v", i, got, tt.want)
		}
	}
}

const time60 = event.Micros(60 * time.Second / time.Microsecond)

// rational is a bucket in fractions: the level as it is written, TAT = max(TAT, t) + n·T.
type rational struct {
	perUnit *big.Rat // T, in µs
	most    *big.Rat // the greatest level in units; nil: any
	tat     *big.Rat
	latest  event.Micros
}

func micros(t event.Micros) *big.Rat { return new(big.Rat).SetInt64(int64(t)) }

func (o *rational) add(at event.Micros, n event.Decimal) {
	if t := micros(at); o.tat == nil || o.tat.Cmp(t) < 0 {
		if o.tat == nil {
			o.latest = at
		}
		o.tat = t
	}
	o.latest = max(o.latest, at)
	units := big.NewRat(int64(n), int64(event.One))
	o.tat = new(big.Rat).Add(o.tat, units.Mul(units, o.perUnit))
	if o.most == nil {
		return
	}
	if last := new(big.Rat).Add(micros(o.latest), new(big.Rat).Mul(o.most, o.perUnit)); last.Cmp(o.tat) < 0 {
		o.tat = last
	}
}

// level at now in millionths, rounded up.
func (o *rational) level(now event.Micros) event.Decimal {
	level := new(big.Rat).Sub(o.tat, micros(now))
	if level.Sign() <= 0 {
		return 0
	}
	level.Quo(level, o.perUnit)
	return event.Decimal(ceil(level.Mul(level, big.NewRat(int64(event.One), 1))))
}

// token returns the moment at which there is one token of burst.
func (o *rational) token(burst event.Decimal) event.Micros {
	spare := big.NewRat(int64(burst-event.One), int64(event.One))
	moment := new(big.Rat).Sub(o.tat, spare.Mul(spare, o.perUnit))
	return max(o.latest, event.Micros(ceil(moment)))
}

func ceil(r *big.Rat) int64 {
	q, rest := new(big.Int).DivMod(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q.Int64()
}

func bucketFrom(b []byte) (windows.Spec, event.Micros, []event.Micros) {
	scale := pick(scales, b[0])
	limits := []event.Decimal{event.One, 3 * event.One, 7 * event.One / 10, event.One / 100, 100 * event.One, 9_000_000_000_000 * event.One}
	spec := bucketOf(pick(limits, b[2]), (1+event.Micros(b[1]))*scale)
	spec.Most = pick([]event.Decimal{0, event.One, 7 * event.One / 2, 40 * event.One, 9_000_000_000_000 * event.One}, b[3])
	return spec, pick(starts, b[4]), []event.Micros{1, scale, 5 * scale}
}

func FuzzBucket(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(story(rand.New(rand.NewPCG(seed, 0)), 60))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) >= head && len(data) <= 200 {
			compareBuckets(t, data)
		}
	})
}

func TestBucketEqualsTheOracle(t *testing.T) {
	for seed := range uint64(testrun.Depth(8_000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		compareBuckets(t, story(r, 1+r.IntN(30)))
		if t.Failed() {
			t.Fatalf("story of rand.NewPCG(%d, 1)", seed)
		}
	}
}

func compareBuckets(t *testing.T, data []byte) {
	t.Helper()
	spec, now, steps := bucketFrom(data)
	if err := spec.Validate(); err != nil {
		t.Fatal(err)
	}
	o := &rational{perUnit: new(big.Rat).Quo(micros(spec.Per), big.NewRat(int64(spec.Limit), int64(event.One)))}
	if spec.Most > 0 {
		o.most = big.NewRat(int64(spec.Most), int64(event.One))
	}
	state := make([]byte, 0, spec.MaxBytes())
	for i := head; i+1 < len(data); i += 2 {
		now += event.Micros(int8(data[i])) * steps[int(data[i+1])/8%len(steps)]
		n := min(amount(data[i+1], false), 300*event.One)
		o.add(now, n)
		var got windows.Added
		state, got = spec.Add(state, now, n)
		if want := (windows.Added{Count: o.level(o.latest)}); got != want {
			t.Fatalf("%+v: Add(%d, %d) = %+v, want %+v", spec, now, n, got, want)
		}
		if err := spec.Check(state); err != nil {
			t.Fatalf("%+v: %v: % x", spec, err, state)
		}
		ahead := o.latest + event.Micros(data[i])*steps[len(steps)-1]
		if got, want := spec.CountAt(state, ahead), o.level(ahead); got != want {
			t.Fatalf("%+v: CountAt(%d) = %d, want %d", spec, ahead, got, want)
		}
		for _, burst := range []event.Decimal{event.One, 5 * event.One / 2, 40 * event.One} {
			if got, want := spec.Below(state, burst), o.token(burst); got != want {
				t.Fatalf("%+v: a token of %v at %d, want %d", spec, burst, got, want)
			}
		}
		now = max(now, o.latest)
	}
	compareSpent(t, script{spec: spec, steps: steps}, state, data[head:])
}

// An empty bucket is its head, and nothing is owed beyond where sums saturate.
func TestABucketsDebtHasOneForm(t *testing.T) {
	c := newCounter(t, bucketOf(event.One, event.Second))
	c.counts(at("2026-11-21T10:00:00Z"), 0, 0)
	most := binary.AppendUvarint(nil, 1<<62)
	for _, debt := range [][]byte{{0}, append([]byte{1}, most...)} {
		if err := c.spec.Check(slices.Concat(c.state, debt)); err == nil {
			t.Errorf("a debt of % x is one", debt)
		}
	}
	if err := c.spec.Check(slices.Concat(c.state, []byte{0}, most)); err != nil {
		t.Errorf("where sums saturate: %v", err)
	}
}

// The greatest amounts there are do not add up to less.
func TestABucketsDebtSaturates(t *testing.T) {
	c := newCounter(t, bucketOf(event.One, windows.MaxTime))
	for range 100 {
		c.state, _ = c.spec.Add(c.state, 0, event.MaxDecimal)
		if err := c.spec.Check(c.state); err != nil || c.spec.Count(c.state) != event.MaxDecimal {
			t.Fatalf("the level is %v: %v", c.spec.Count(c.state), err)
		}
	}
}

func TestTheSmallestGreatestLevelBoundsABucket(t *testing.T) {
	spec := bucketOf(event.One, event.Second)
	spec.Most = 1 // a millionth
	c := newCounter(t, spec)
	if got := c.add(at("2026-11-21T10:00:00Z"), 5).Count; got != 1 {
		t.Errorf("the level is %v, want a millionth", got)
	}
}
