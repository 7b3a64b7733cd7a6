package engine

import "github.com/tallygate/tallygate/pipeline/aggregate/shard"

// Shard returns the engine's shard.
func (e *Engine) Shard() *shard.Shard { return e.shard }

// Keep gets the states that the shard writes.
func (e *Engine) Keep(kept func(shard.Append)) { e.kept = kept }

// GoOn takes over where another engine was, but for its shard.
func (e *Engine) GoOn(from *Engine) {
	e.number, e.offset, e.published = from.number, from.offset, from.published
	e.held, e.shapes = from.held, from.shapes
}
