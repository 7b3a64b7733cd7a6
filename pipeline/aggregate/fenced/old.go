package fenced

import (
	"context"
	"fmt"
)

// FenceOld shuts a producer id out of a topic-partition for good, and returns the offset of
// the record that did it: recovery must go up to there. A takeover needs it when the last
// fence record names another producer id than its own, since epochs only fence their own id:
// the coordinator has forgotten the old one, or its epochs were used up.
//
// It fences with the greatest epoch there is instead of the next one: the old owner may have
// been given the next one before it was paused, and the id is never used again. The caller must
// be sure that the id is not its successor's: Identity.Refresh tells.
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
