package aggregate

import (
	"fmt"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// epoch is that of the batch that the next record is of; shard.NoEpoch after the last.
func (b *bundle) epoch() int32 {
	for len(b.batches) > 0 && b.batches[0].Len() == 0 {
		b.batches = b.batches[1:]
	}
	if len(b.batches) == 0 {
		return shard.NoEpoch
	}
	return b.batches[0].Epoch()
}

// enterEpoch makes a checkpoint durable that names the epoch of what comes next, without the lock meanwhile. It
// reports false when that failed: nothing of the epoch may be counted then. The partition is locked.
//
// The checkpoint goes on when the session ends meanwhile: one at the release could not make up for it.
func (p *partition) enterEpoch(src shard.Source, epoch int32) bool {
	p.shard.EnterEpoch(src, epoch)
	p.mu.Unlock()
	err := p.checkpoint(p.ctx)
	p.mu.Lock()
	if err != nil && p.ctx.Err() == nil {
		p.die(fmt.Errorf("note that leader epoch %d of %s begins: %w", epoch, p.topicOf(src), err))
	}
	return err == nil && p.working.Err() == nil
}
