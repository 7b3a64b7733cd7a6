package owner

import (
	"context"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// lookAtQuotas is the interval between looks at remainders under limits with `quota` that wait to be published.
const lookAtQuotas = 100 * time.Millisecond

// quotas publishes what keys have left.
type quotas struct {
	*core
	out  *outbox
	some chan struct{} // holds one after something began to wait
}

// wake tells run that something waits. The partition is locked.
func (n *quotas) wake() {
	if n.shard.Quotas().Waiting() > 0 {
		ring(n.some)
	}
}

// run publishes what is due. It sleeps while nothing waits.
func (n *quotas) run() error {
	for awaited(n.core, n.some) {
		for more := true; more; {
			if !awaited(n.core, time.After(lookAtQuotas)) {
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

// publish publishes what is due, or all that waits now, in slices between events. It reports whether
// more waits.
func (n *quotas) publish(ctx context.Context, all bool) (waits bool, err error) {
	n.lock()
	due := n.shard.Quotas().Due(all, n.clock())
	waits = n.shard.Quotas().Waiting() > 0
	n.mu.Unlock()
	for more := due.Any(); more; {
		if err := n.out.verdicts.WaitBelow(ctx, sliceBytes); err != nil {
			return false, err
		}
		waits, more, err = n.slice(&due)
		if err != nil {
			return false, err
		}
	}
	return waits, nil
}

// slice publishes the first of what is due, for as long as events may be delayed.
func (n *quotas) slice(due *shard.DueQuotas) (waits, more bool, err error) {
	n.lock()
	defer n.mu.Unlock()
	clock := n.clock()
	for began := time.Now(); ; {
		if more = n.shard.Quotas().Publish(due, clock); !more || time.Since(began) >= sliceTime {
			return n.shard.Quotas().Waiting() > 0, more, n.out.perform()
		}
	}
}
