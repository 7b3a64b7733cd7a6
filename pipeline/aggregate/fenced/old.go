package fenced

import (
	"context"
	"fmt"
)

// FenceOld excludes a producer id from a topic-partition for good. It returns the offset of its
// fence record, up to which recovery must read. A takeover needs it if the last fence record names
// another producer id than its own, because epochs fence only their own id: the coordinator has
// forgotten the old id, or its epochs were used up.
//
// It fences with the greatest possible epoch instead of the next one. The old owner may have
// received the next one before it was paused, and the id is never used again. The caller must be
// sure that the id is not its successor's: Identity.Refresh tells.
func FenceOld(ctx context.Context, cfg Config, topic string, partition int32, oldProducerID int64) (offset int64, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return 0, err
	}
	if oldProducerID < 0 {
		return 0, fmt.Errorf("fence the old producer id: %d is not a producer id", oldProducerID)
	}
	old := stamp{oldProducerID, shutOut}
	id := newIdentity(cfg, old)
	w := id.NewWriter(topic, partition)
	w.stamp = old
	a, err := w.appendFence(ctx, old)
	if err != nil {
		return 0, fmt.Errorf("fence the old producer id: %w", err)
	}
	return a.offset, nil
}
