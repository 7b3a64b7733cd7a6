package owner

import (
	"context"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// levelsEvery is the time for which changes of a key's level are collected, so that a busy key is published once and
// not at each event.
const levelsEvery = time.Millisecond

// levels publishes what keys have counted under strict limits.
type levels struct {
	*core
	out  *outbox
	some chan struct{} // holds one after levels began to wait
}

// wake tells run that levels wait. The partition is locked.
func (n *levels) wake() {
	if !n.shard.Levels().Waiting() {
		return
	}
	ring(n.some)
}

// run publishes levels a moment after they have changed. It sleeps while none has.
func (n *levels) run() error {
	for awaited(n.core, n.some) && awaited(n.core, time.After(levelsEvery)) {
		if err := n.publish(n.ctx); err != nil {
			return n.ended(err)
		}
	}
	return nil
}

// publish publishes all levels that wait, in slices between events.
func (n *levels) publish(ctx context.Context) error {
	for more := true; more; {
		if err := n.out.changelog.WaitBelow(ctx, sliceBytes); err != nil {
			return err
		}
		n.lock()
		var err error
		if more, err = n.shard.Levels().Publish(shard.LevelsAtOnce); err == nil {
			err = n.out.perform()
		}
		if err != nil { // what was taken off the queue is lost to it
			n.fail(n.ended(err))
		}
		n.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
