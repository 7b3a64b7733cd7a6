package shard

import (
	"github.com/tallygate/tallygate/pipeline/aggregate/hotkeys"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

// intake takes events in, each once on each key.
type intake struct {
	log      *Log
	rules    *inUse
	table    *table
	levels   *Levels
	verdicts *Verdicts
	quotas   *Quotas
	judge    *Judge
	commands *commands
	packs    *Packs

	origins    map[int32]seen // of forwarded events, by their partition
	producers  producers
	generation uint32 // how often the input's offsets have started over
	hot        *hotkeys.Sketch

	decode     decoders
	gathered   gathered
	unpacking  unpacking
	spans      spans
	targets    []int32          // of an event's forwards
	mismatches []rules.Mismatch // of an event
}

// decoders are the shard's own. What they returned is in use until the next record that finds
// nothing gathered.
type decoders struct {
	input, loop event.Decoder
	headers     []event.Header
	events      []event.Event
	most        int            // events of a record, since Forget
	droppedIPs  uint64         // of input, as far as the tally knows
	suspects    event.Suspects // the same
}

// decodeRecord decodes a record behind those that are gathered.
func (in *intake) decodeRecord(d *event.Decoder, value []byte, headers []event.Header, key []byte) ([]event.Event, error) {
	decode := d.DecodeMore
	if len(in.gathered.steps) == 0 {
		decode = d.Decode
	}
	events, err := decode(value, headers, key, in.decode.events[:0])
	in.decode.events, in.decode.most = events, max(in.decode.most, len(events))
	return events, err
}

// forget drops what refers to records that are counted.
func (in *intake) forget() {
	d := &in.decode
	d.input.Forget()
	d.loop.Forget()
	clear(d.events[:min(d.most, cap(d.events))])
	clear(d.headers[:cap(d.headers)])
	d.most = 0
	in.gathered.forget()
	in.unpacking.forget()
}

func (in *intake) match(e *event.Event, at event.Micros) []rules.Work {
	works := in.rules.matcher.Match(e, at)
	in.log.out.Skipped = append(in.log.out.Skipped, in.rules.matcher.Skipped...)
	if len(works) == 0 {
		in.log.tally.noteUnmatched(e)
	}
	return works
}

// owner is the partition that a key belongs to.
func (c *Config) owner(w *rules.Work) int32 { return int32(w.Hash&0x7fffffff) % c.Of }
