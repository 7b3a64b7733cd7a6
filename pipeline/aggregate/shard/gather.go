package shard

import (
	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

// Events are decoded and matched some dozens at a time, and then stepped. In between the table
// reads a little of each key's state: among a million keys a step would otherwise spend more time
// waiting for memory than counting, and so the waits overlap.

// gatherAtOnce is how many steps are gathered before they are made. The last event may have more
// keys, and the last record more events.
const gatherAtOnce = 32

// gathered are the steps to come. It owns what they are made of, but for the events' strings,
// which are the records' or the decoder's until the next Decode.
type gathered struct {
	steps  []gatheredStep
	hashes []uint64 // of the steps' keys
	keys   []byte
	hits   []rules.Hit
}

// gatheredStep is one event for one key of this partition.
type gatheredStep struct {
	shape      *rules.KeyShape
	key, hit   int // where they end in gathered; they begin where the step before ends
	id         string
	at, broker event.Micros
	source     Source
	place      applied
	cause      verdict.Cause
}

func (g *gathered) add(w *rules.Work, s gatheredStep) {
	g.hashes = append(g.hashes, state.Hash(w.Key))
	g.keys = append(g.keys, w.Key...)
	g.hits = append(g.hits, w.Hits...)
	s.shape, s.key, s.hit = w.Shape, len(g.keys), len(g.hits)
	g.steps = append(g.steps, s)
}

func (g *gathered) reset() {
	g.steps, g.hashes, g.keys, g.hits = g.steps[:0], g.hashes[:0], g.keys[:0], g.hits[:0]
}
