package retry

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPausesDouble(t *testing.T) {
	for failures, want := range map[int]time.Duration{
		-1: 50, 0: 50, 1: 50, 2: 100, 3: 200, 4: 400, 5: 500, 6: 500, 1 << 40: 500,
	} {
		if got := After(failures, 50, 500); got != want {
			t.Errorf("after %d failures %d, want %d", failures, got, want)
		}
	}
	if got := After(100, 1, time.Hour); got != time.Hour {
		t.Errorf("from a nanosecond to %v, want an hour", got)
	}
}

// TestPausesGrowAndDiffer: a thousand enforcers that lost the same Redis must not come back in step.
func TestPausesGrowAndDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Backoff{Min: 50 * time.Millisecond, Max: 2 * time.Second, Spread: true}
		b := a
		pause := func(of *Backoff) time.Duration {
			began := time.Now()
			if !of.Wait(t.Context()) {
				t.Error("the pause was cut short")
			}
			return time.Since(began)
		}
		same := 0
		for i := range 20 {
			most := min(a.Min<<i, a.Max)
			for range 2 {
				first, second := pause(&a), pause(&b)
				if first < most/2 || first >= most || second < most/2 || second >= most {
					t.Errorf("failure %d: pauses of %v and %v, want between %v and %v", i, first, second, most/2, most)
				}
				if first == second {
					same++
				}
				a.failures, b.failures = i, i // once more
			}
			a.failures, b.failures = i+1, i+1
		}
		if same > 2 {
			t.Errorf("%d of 40 pauses are the same for both", same)
		}
		if a.Failures() != 20 {
			t.Errorf("%d failures, want 20", a.Failures())
		}
		a.Reset()
		if p := pause(&a); p >= a.Min {
			t.Errorf("after a success the first pause is %v, want less than %v", p, a.Min)
		}
	})
}

func TestWithoutSpreadAPauseIsWhatItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, began := Backoff{Min: 50 * time.Millisecond, Max: 500 * time.Millisecond}, time.Now()
		for range 6 {
			b.Wait(t.Context())
		}
		if got, want := time.Since(began), (50+100+200+400+500+500)*time.Millisecond; got != want {
			t.Errorf("six pauses take %v, want %v", got, want)
		}
	})
}

func TestAPauseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if Sleep(ctx, time.Hour) || time.Since(began) != time.Second {
			t.Errorf("it ended after %v", time.Since(began))
		}
		if b := (Backoff{Min: time.Hour, Max: time.Hour}); b.Wait(ctx) {
			t.Error("a pause passed whose context had ended")
		}
		for _, d := range []time.Duration{time.Minute, 0, -1} {
			if !Sleep(context.WithoutCancel(ctx), d) || Sleep(ctx, d) {
				t.Errorf("a pause of %v: want that it passes, unless its context has ended", d)
			}
		}
	})
}
