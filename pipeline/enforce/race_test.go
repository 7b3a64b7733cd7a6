package enforce

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// TestNobodyIsSeenUnblocked checks keys that are blocked throughout, while writers extend them,
// replace all, and add and remove others so fast that the index grows and shrinks all the time.
func TestNobodyIsSeenUnblocked(t *testing.T) {
	const always = 200
	table := newTable(t)
	key := func(i int) string { return "uid=always" + strconv.Itoa(i) }
	var all []verdict.Verdict
	for i := range always {
		all = append(all, block("r", key(i), nil))
	}
	table.Replace(0, all)

	var stop atomic.Bool
	var readers, writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for n := range 1500 {
				batch := []verdict.Verdict{
					block("r", key(rand.IntN(always)), func(v *verdict.Verdict) { v.Until += event.Micros(n); v.Seq = int64(n) }),
					block("s", key(rand.IntN(always)), nil),
				}
				for i := range 50 {
					other := block("r", fmt.Sprintf("uid=other%d-%d", w, rand.IntN(3000)), nil)
					if i%2 == 0 {
						other.State = verdict.Clear
					}
					other.Seq = int64(n)
					batch = append(batch, other)
				}
				table.Apply(0, batch)
				switch {
				case n%100 == 0:
					table.Replace(0, all)
				case n%70 == 0:
					table.index.Sweep(t0)
				case n%11 == 0:
					table.Remove(0, []byte(key(rand.IntN(always))+"|s"))
				}
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			for i := 0; !stop.Load(); i++ {
				uid := "always" + strconv.Itoa(i%always)
				if d := table.CheckAt(t0, "a", uid); d.Allowed {
					t.Errorf("%s was let through", uid)
					return
				}
				table.CheckAt(t0, "a", "other0-"+strconv.Itoa(i%3000))
			}
		})
	}
	writers.Wait()
	stop.Store(true)
	readers.Wait()
}
