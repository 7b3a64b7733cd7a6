package aggregate

import (
	"context"
	"time"
)

// lookAtEnds is how often there is a look at ends of blocks that moved and wait to be published.
const lookAtEnds = 50 * time.Millisecond

// wakeEnds tells publishEnds that ends wait. The partition is locked.
func (p *partition) wakeEnds() {
	if p.shard.EndsWaiting() == 0 {
		return
	}
	select {
	case p.endsWait <- struct{}{}:
	default:
	}
}

// publishEnds publishes ends that moved when they are due. It sleeps while none waits.
func (p *partition) publishEnds() error {
	for {
		select {
		case <-p.endsWait:
		case <-p.stop:
			return nil
		case <-p.ctx.Done():
			return nil
		}
		for more := true; more; {
			select {
			case <-time.After(lookAtEnds):
			case <-p.stop:
				return nil
			case <-p.ctx.Done():
				return nil
			}
			var err error
			if more, err = p.publishDue(p.ctx, false); err != nil {
				return p.ended(err)
			}
		}
	}
}

// publishDue publishes what is due, or all that waits, in slices between events. It reports whether more waits.
func (p *partition) publishDue(ctx context.Context, all bool) (more bool, err error) {
	p.lock()
	clock := p.clock()
	keys := p.shard.EndsDue(all, clock)
	more = p.shard.EndsWaiting() > 0
	p.mu.Unlock()
	for len(keys) > 0 {
		if err := p.changelog.WaitBelow(ctx, sliceBytes); err != nil {
			return false, err
		}
		p.lock()
		n := 0
		for began := time.Now(); n < len(keys) && (n == 0 || time.Since(began) < sliceTime); n++ {
			p.shard.PublishEnds(keys[n], all, clock)
		}
		more = p.shard.EndsWaiting() > 0
		err = p.perform()
		p.mu.Unlock()
		if err != nil {
			return false, err
		}
		keys = keys[n:]
	}
	return more, nil
}
