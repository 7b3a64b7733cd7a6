package shard

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// Events are decoded and matched some dozens at a time, and then stepped. Meanwhile the table asks for the memory of
// each key's state: among a million keys a step would otherwise spend more time waiting for memory than counting.
// So the waits overlap, with each other and with decoding.

// gatherAtOnce is the number of steps that are gathered before they are made. The last event may have more keys, and
// the last record more events.
const gatherAtOnce = 32

// gathered are the steps to come. It owns what they are made of, but for the events' strings,
// which are the records' or the decoder's until the next Decode.
type gathered struct {
	table  *state.Table
	steps  []gatheredStep
	hashes []uint64 // of the steps' keys
	keys   []byte
	hits   []rules.Hit
	most   int // steps that were gathered since forget
}

// gatheredStep is one event for one key of this partition.
type gatheredStep struct {
	shape      *rules.KeyShape // nil: the event counts under no rule of the key's
	key, hit   int             // where they end in gathered; they begin where the step before ends
	id         string
	at, broker event.Micros
	permit     string       // what it settles on the key; "" for nothing
	permitAt   event.Micros // see rules.Input
	lost       bool         // so is this
	source     Source
	place      applied
	cause      verdict.Cause
	trace      *event.Trace // nil: it is not traced
}

// add adds a step; its shape, and where its key and hits end, follow from w. Until it is made, the index of the
// table may be on its way.
func (g *gathered) add(w *rules.Work, of *gatheredStep) {
	hash := state.Hash(w.Key)
	g.table.Expect(hash)
	g.hashes = append(g.hashes, hash)
	g.keys = append(g.keys, w.Key...)
	g.hits = append(g.hits, w.Hits...)
	g.steps = append(g.steps, *of)
	s := &g.steps[len(g.steps)-1]
	s.shape, s.key, s.hit = w.Shape, len(g.keys), len(g.hits)
}

func (g *gathered) reset() {
	g.most = max(g.most, len(g.steps))
	g.steps, g.hashes, g.keys, g.hits = g.steps[:0], g.hashes[:0], g.keys[:0], g.hits[:0]
}

// forget drops what steps that were made refer to.
func (g *gathered) forget() {
	clear(g.steps[:min(g.most, cap(g.steps))])
	g.most = 0
}

// mark counts the steps gathered so far, for cut.
func (g *gathered) mark() int { return len(g.steps) }

// cut drops what was gathered since mark.
func (g *gathered) cut(steps int) {
	key, hit := 0, 0
	if steps > 0 {
		key, hit = g.steps[steps-1].key, g.steps[steps-1].hit
	}
	g.steps, g.hashes, g.keys, g.hits = g.steps[:steps], g.hashes[:steps], g.keys[:key], g.hits[:hit]
}
