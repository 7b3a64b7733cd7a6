package owner

import (
	"context"
	"time"
)

// lookAtEnds is how often there is a look at ends of blocks that moved and wait to be published.
const lookAtEnds = 50 * time.Millisecond

// ends publishes ends of blocks that moved.
type ends struct {
	*core
	out  *outbox
	some chan struct{} // holds one when ends begin to wait
}

// wake tells run that ends wait. The partition is locked.
func (n *ends) wake() {
	if n.shard.EndsWaiting() == 0 {
		return
	}
	select {
	case n.some <- struct{}{}:
	default:
	}
}

// run publishes ends that moved when they are due. It sleeps while none waits.
func (n *ends) run() error {
	for {
		select {
		case <-n.some:
		case <-n.stop:
			return nil
		case <-n.ctx.Done():
			return nil
		}
		for more := true; more; {
			select {
			case <-time.After(lookAtEnds):
			case <-n.stop:
				return nil
			case <-n.ctx.Done():
				return nil
			}
			var err error
			if more, err = n.publish(n.ctx, false); err != nil {
				return n.ended(err)
			}
		}
	}
}

// publish publishes what is due, or all that waits, in slices between events. It reports whether more waits.
func (n *ends) publish(ctx context.Context, all bool) (more bool, err error) {
	n.lock()
	clock := n.clock()
	keys := n.shard.EndsDue(all, clock)
	more = n.shard.EndsWaiting() > 0
	n.mu.Unlock()
	for len(keys) > 0 {
		if err := n.out.changelog.WaitBelow(ctx, sliceBytes); err != nil {
			return false, err
		}
		n.lock()
		i := 0
		for began := time.Now(); i < len(keys) && (i == 0 || time.Since(began) < sliceTime); i++ {
			n.shard.PublishEnds(keys[i], all, clock)
		}
		more = n.shard.EndsWaiting() > 0
		err = n.out.perform()
		n.mu.Unlock()
		if err != nil {
			return false, err
		}
		keys = keys[i:]
	}
	return more, nil
}
