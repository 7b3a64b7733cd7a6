package owner

import (
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// Bundle is records of one source, in order.
type Bundle struct {
	Source  shard.Source
	Batches []kafkalog.Batch
	Place   int64 // behind the bundle, and all that nobody is to see
}

// next reads the next record; false after the last. Behind an error, a *kafkalog.Unreadable, it goes on.
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

// epoch is that of the batch that the next record is of; shard.NoEpoch after the last.
func (b *Bundle) epoch() int32 {
	for len(b.Batches) > 0 && b.Batches[0].Len() == 0 {
		b.Batches = b.Batches[1:]
	}
	if len(b.Batches) == 0 {
		return shard.NoEpoch
	}
	return b.Batches[0].Epoch()
}
