package aggregate

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// A log that was cut and has grown again has other records at offsets that were counted. Offsets do not tell,
// leader epochs do (KIP-320): a checkpoint names the epoch of the leader that took what was counted last, and
// the log's leader knows where each epoch ends. Marks in the changelog may be ahead of the checkpoint; for
// them to be of the epoch that it names, too, there is a checkpoint between the last event of an epoch and the
// first of the next.

// noEpoch is where it is not known which leader took a lane's last record.
const noEpoch = -1

// laneEpochs are the epochs that a partition is in.
type laneEpochs struct {
	Is   [lanes]int32 `json:"is"`   // noEpoch where it is not known
	From [lanes]int64 `json:"from"` // where the partition came to it: what it counted from there on is of that epoch
}

var noEpochs = laneEpochs{Is: [lanes]int32{inputLane: noEpoch, loopLane: noEpoch}}

// epoch is that of the batch that the next record is of; noEpoch after the last.
func (b *bundle) epoch() int32 {
	for len(b.batches) > 0 && b.batches[0].Len() == 0 {
		b.batches = b.batches[1:]
	}
	if len(b.batches) == 0 {
		return noEpoch
	}
	return b.batches[0].Epoch()
}

// enterEpoch makes a checkpoint durable that names the epoch of what comes next, without the lock meanwhile. It
// reports false when that failed: nothing of the epoch may be counted then. The partition is locked.
//
// The checkpoint goes on when the session ends meanwhile: one at the release could not make up for it.
func (p *partition) enterEpoch(l lane, epoch int32) bool {
	p.epochs.Is[l], p.epochs.From[l] = epoch, p.next[l]
	p.mu.Unlock()
	err := p.checkpoint(p.ctx)
	p.mu.Lock()
	if err != nil && p.ctx.Err() == nil {
		p.die(fmt.Errorf("note that leader epoch %d of %s begins: %w", epoch, p.topicOf(l), err))
	}
	return err == nil && p.working.Err() == nil
}

// reached is the offset behind all that any key has counted of a lane.
func (p *partition) reached(l lane) int64 {
	var most int64
	for ref := range p.table.All() {
		if b, err := decodeBlock(p.table.Block(ref)); err == nil { // it was checked when it was read
			most = max(most, b.marks[l].next)
		}
	}
	return most
}

// cutAt asks whether the log has lost what was counted of it, and from which offset on.
func (p *partition) cutAt(l lane, topic string, c *checkpoint) (at int64, cut bool, err error) {
	if c.Epochs == nil || c.Epochs.Is[l] == noEpoch {
		return 0, false, nil
	}
	epoch, from := c.Epochs.Is[l], c.Epochs.From[l]
	is, err := p.agg.fetcher.EndOfEpoch(p.ctx, topic, p.id, epoch)
	if errors.Is(err, kerr.UnsupportedVersion) { // a broker before Kafka 2.0
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	reached := max(c.Next[l], p.reached(l))
	switch {
	case reached <= from: // nothing of the epoch was counted: it does not matter whether the log still has it
		return is.End, is.End >= 0 && is.End < reached, nil
	case is.Epoch < epoch: // of the epoch nothing is left, and others may have its place
		return min(is.End, from), is.Lost(epoch, reached), nil
	default:
		return is.End, is.Lost(epoch, reached), nil
	}
}

// behind says where a reader of a lane begins, and which leader took what lies below.
func (p *partition) behind(l lane) (next int64, epoch int32) {
	p.lock()
	defer p.mu.Unlock()
	if p.next[l] <= p.epochs.From[l] { // nothing of that epoch was counted
		return p.next[l], noEpoch
	}
	return p.next[l], p.epochs.Is[l]
}
