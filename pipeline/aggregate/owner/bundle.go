package owner

import (
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// Bundle holds records of one source, in order.
type Bundle struct {
	Source  shard.Source
	Batches []kafkalog.Batch
	Place   int64 // the offset after the bundle, and after markers that follow it
}

// next reads the next record, and returns false after the last. After an error, a
// *kafkalog.Unreadable, it continues.
func (b *Bundle) next(rec *kafkalog.Record) (ok bool, err error) {
	for len(b.Batches) > 0 {
		if ok, err = b.Batches[0].Next(rec); ok {
			return true, nil
		}
		b.Batches = b.Batches[1:]
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// epoch returns the leader epoch of the next record's batch, or shard.NoEpoch after the last.
func (b *Bundle) epoch() int32 {
	for len(b.Batches) > 0 && b.Batches[0].Len() == 0 {
		b.Batches = b.Batches[1:]
	}
	if len(b.Batches) == 0 {
		return shard.NoEpoch
	}
	return b.Batches[0].Epoch()
}
