package hotkeys

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// exact is the model: every key, with the same decay.
type exact struct {
	count map[string]float64
	total float64
}

func (x *exact) touch(key string) {
	x.count[key]++
	x.total++
}

func (x *exact) tick(d event.Micros) {
	f := keeps(d)
	x.total *= f
	for k := range x.count {
		x.count[k] *= f
	}
}

func (x *exact) share(key string) float64 { return x.count[key] / x.total }

// A stream whose keys are zipf-distributed, and whose rate changes by the second.
func TestAgainstExactCounts(t *testing.T) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 1))
		zipf := rand.NewZipf(rng, 1.2, 4, 5000)
		s, x := New(seed+1), &exact{count: map[string]float64{}}
		now := event.Micros(1_000_000_000)
		s.Tick(now)
		for range 60 {
			for range 100 + rng.IntN(4000) {
				key := fmt.Sprintf("uid=%d", zipf.Uint64())
				s.Touch([]byte(key))
				x.touch(key)
			}
			now += event.Second
			s.Tick(now)
			x.tick(event.Second)
		}
		told := map[string]float64{}
		for _, k := range s.Hot(now, 0.01) {
			told[string(k.Text)] = k.Share
		}
		large := 0
		for key := range x.count {
			share, got := x.share(key), told[key]
			if share > 0.03 {
				large++
			}
			// The sample's spread, and what a key is told less for having come late.
			if spread := 5*math.Sqrt(share/1500) + 1.0/Slots; share > 0.03 && math.Abs(got-share) > spread {
				t.Errorf("seed %d: %s has %.3f, told is %.3f", seed, key, share, got)
			}
			if got > share+5*math.Sqrt(max(share, 0.01)/1500) {
				t.Errorf("seed %d: %s has %.3f, told is more: %.3f", seed, key, share, got)
			}
		}
		if large < 2 || len(told) < 4 {
			t.Errorf("seed %d: %d large keys, %d told", seed, large, len(told))
		}
	}
}

// What was hot a while ago is not hot now.
func TestHeatFades(t *testing.T) {
	s, now := New(1), event.Micros(0)
	s.Tick(now)
	second := func(hot string) {
		for i := range 2000 {
			if i%2 == 0 {
				s.Touch([]byte(hot))
			} else {
				s.Touch(fmt.Appendf(nil, "uid=%d-%d", now, i))
			}
		}
		now += event.Second
		s.Tick(now)
	}
	for range 60 {
		second("uid=old")
	}
	hot := s.Hot(now, 0.1)
	if len(hot) != 1 || string(hot[0].Text) != "uid=old" || math.Abs(hot[0].Share-0.5) > 0.05 || math.Abs(hot[0].Rate-1000) > 150 {
		t.Fatalf("half of all: %v", hot)
	}
	for range 20 {
		second("uid=new")
	}
	hot = s.Hot(now, 0.1)
	if len(hot) != 2 || math.Abs(hot[0].Share-0.25) > 0.05 || math.Abs(hot[1].Share-0.25) > 0.05 {
		t.Fatalf("after a half-life: %v", hot)
	}
	for range 60 {
		second("uid=new")
	}
	hot = s.Hot(now, 0.1)
	if len(hot) != 1 || string(hot[0].Text) != "uid=new" {
		t.Fatalf("after a minute more: %v", hot)
	}
	for range 60 {
		now += event.Second
		s.Tick(now)
	}
	if rate := s.Rate(now); rate > 2000/4 {
		t.Errorf("a minute of silence, and the rate is %.0f", rate)
	}
}

// Keys that come in turns are all alike, also when their number and the distance of samples
// are both powers of two.
func TestTurnsShowNoFalseHeat(t *testing.T) {
	s, now := New(7), event.Micros(0)
	s.Tick(now)
	for n := range 400_000 {
		s.Touch(fmt.Appendf(nil, "uid=%d", n%256))
		if n%10_000 == 0 {
			now += event.Second
			s.Tick(now)
		}
	}
	if hot := s.Hot(now, 0.03); len(hot) > 0 {
		t.Errorf("of 256 keys in turns these are hot: %v", hot)
	}
}

func TestRate(t *testing.T) {
	for _, perSecond := range []int{20, 1000, 20_000} {
		s, now := New(3), event.Micros(0)
		s.Tick(now)
		for second := range 15 {
			for n := range perSecond {
				s.Touch(fmt.Appendf(nil, "uid=%d", n))
			}
			now += event.Second
			s.Tick(now)
			if got := s.Rate(now); second > 2 && math.Abs(got/float64(perSecond)-1) > 0.3 {
				t.Errorf("%d events a second look like %.0f after %d s", perSecond, got, second+1)
			}
		}
	}
}

// Few events are not sampled: a handful shows as it is.
func TestFewEventsAreExact(t *testing.T) {
	s := New(1)
	s.Tick(0)
	for range 3 {
		s.Touch([]byte("uid=a"))
	}
	s.Touch([]byte("uid=b"))
	hot := s.Hot(event.Second, 0)
	if len(hot) != 2 || hot[0].Share != 0.75 || hot[1].Share != 0.25 {
		t.Errorf("%v", hot)
	}
}

// Nothing that a producer sends makes it large: not many keys, not long ones. A clock that
// goes back changes nothing.
func TestBounds(t *testing.T) {
	s := New(1)
	s.Tick(10 * event.Second)
	if s.Rate(10*event.Second) != 0 || s.Hot(10*event.Second, 0) != nil {
		t.Error("something is hot in nothing")
	}
	long := []byte("uid=" + strings.Repeat("x", maxKey))
	for range 100 {
		s.Touch(long)
	}
	if hot := s.Hot(11*event.Second, 0); hot != nil {
		t.Errorf("a long key was kept: %d", len(hot))
	}
	before := s.Rate(11 * event.Second)
	s.Tick(9 * event.Second)
	if after := s.Rate(11 * event.Second); before == 0 || after != before {
		t.Errorf("the rate was %f, and is %f after a clock went back", before, after)
	}
	key := []byte("uid=0000000000")
	n := 0
	if allocs := testrun.Allocs(10_000, func() {
		n++
		for i, v := len(key)-1, n; v > 0; i, v = i-1, v/10 {
			key[i] = '0' + byte(v%10)
		}
		s.Touch(key)
	}); allocs > 0.01 {
		t.Errorf("%.2f allocations an event", allocs)
	}
}

// BenchmarkTouch is the cost of an event, at some rates a second: samples are as many at each.
func BenchmarkTouch(b *testing.B) {
	for _, perSecond := range []int{1000, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(perSecond), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			zipf := rand.NewZipf(rng, 1.1, 8, 1_000_000)
			keys := make([][]byte, 1<<16)
			for i := range keys {
				keys[i] = fmt.Appendf(nil, "uid=user-%07d", zipf.Uint64())
			}
			s := New(1)
			now, n := event.Micros(0), 0
			for b.Loop() {
				s.Touch(keys[n&(len(keys)-1)])
				if n++; n%perSecond == 0 {
					now += event.Second
					s.Tick(now)
				}
			}
		})
	}
}
