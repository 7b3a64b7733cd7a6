package enforce

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

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
