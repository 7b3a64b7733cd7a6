package owner

import (
	"testing"
	"testing/synctest"

	"github.com/tallygate/tallygate/pipeline/aggregate/budget"
)

// However many partitions of the repartition topic take nothing, what waits for them stays within one bound, and
// there is room for the next one.
func TestForwardsThatWaitDoNotMultiply(t *testing.T) {
	const partitions, record = 64, 1 << 10
	b := budget.New(64 << 20)
	f := NewForwarding(b, partitions)
	for to := range int32(partitions) {
		n := 0
		for ; !f.over(to) && !f.full(); n++ {
			f.forwarded(to, record)
		}
		if int64(n) < b.ForwardsLimit()/record/partitions/4 {
			t.Errorf("partition %d gets %d records, behind %d that are stuck", to, n, to)
		}
	}
	if held := b.Held(budget.Forwards); held > b.ForwardsLimit()+partitions*record {
		t.Errorf("%d bytes wait, of %d", held, b.ForwardsLimit())
	}
}

// A partition waits until less waits for those that it forwards to, and not for others.
func TestForwardsWaitForTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(4 << 10)
		f := NewForwarding(b, 2)
		for !f.over(0) {
			f.forwarded(0, 10)
		}
		if !f.awaitRoom(t.Context(), nil) || !f.awaitRoom(t.Context(), []int32{1}) {
			t.Fatal("it waits for what others forward")
		}
		done := make(chan bool)
		go func() { done <- f.awaitRoom(t.Context(), []int32{0}) }()
		for i := 0; f.to[0].Load() >= 10; i++ {
			synctest.Wait()
			select {
			case ok := <-done:
				if !ok || i == 0 {
					t.Errorf("after %d acknowledgements: %v", i, ok)
				}
				return
			default:
			}
			f.forwarded(0, -10)
		}
		if !<-done {
			t.Error("it waits still, and nothing does")
		}
	})
}
