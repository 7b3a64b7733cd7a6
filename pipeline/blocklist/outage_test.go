package blocklist

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPausesGrowAndDiffer: a thousand enforcers that lost the same Redis must not come back in step.
func TestPausesGrowAndDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a, b backoff
		pause := func(of *backoff) time.Duration {
			began := time.Now()
			of.wait(t.Context())
			return time.Since(began)
		}
		same := 0
		for i := range 20 {
			most := min(minBackoff<<i, maxBackoff)
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
		a.reset()
		if p := pause(&a); p >= minBackoff {
			t.Errorf("after a success the first pause is %v, want less than %v", p, minBackoff)
		}
	})
}
