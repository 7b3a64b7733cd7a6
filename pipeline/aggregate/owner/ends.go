package owner

import (
	"context"
	"time"
)

// lookAtEnds is the interval between looks at moved ends of blocks that wait to be published.
const lookAtEnds = 50 * time.Millisecond

// ends publishes ends of blocks that moved.
type ends struct {
	*core
	out  *outbox
	some chan struct{} // holds one after ends began to wait
}

// wake tells run that ends wait. The partition is locked.
func (n *ends) wake() {
	if n.shard.Verdicts().EndsWaiting() == 0 {
		return
	}
	ring(n.some)
}

// run publishes moved ends when they are due. It sleeps while none waits.
func (n *ends) run() error {
	for awaited(n.core, n.some) {
		for more := true; more; {
			if !awaited(n.core, time.After(lookAtEnds)) {
				return nil
			}
			var err error
			if more, err = n.publish(n.ctx, false); err != nil {
				return n.ended(err)
			}
		}
	}
	return nil
}

// publish publishes the ends that are due, or all that wait, in slices between events. It reports
// whether more wait.
func (n *ends) publish(ctx context.Context, all bool) (more bool, err error) {
	n.lock()
	clock := n.clock()
	keys := n.shard.Verdicts().EndsDue(all, clock)
	more = n.shard.Verdicts().EndsWaiting() > 0
	n.mu.Unlock()
	for len(keys) > 0 {
		if err := n.out.changelog.WaitBelow(ctx, sliceBytes); err != nil {
			return false, err
		}
		n.lock()
		i := 0
		for began := time.Now(); i < len(keys) && (i == 0 || time.Since(began) < sliceTime); i++ {
			n.shard.Verdicts().PublishEnds(keys[i], all, clock)
		}
		more = n.shard.Verdicts().EndsWaiting() > 0
		err = n.out.perform()
		n.mu.Unlock()
		if err != nil {
			return false, err
		}
		keys = keys[i:]
	}
	return more, nil
}
