package shard

import (
	"github.com/tallygate/tallygate/pipeline/aggregate/hotkeys"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

// intake takes events and commands in, each once on each key.
type intake struct {
	judging
	origins    map[int32]seen // of forwarded events, by their partition
	producers  producers
	generation uint32 // how often the input's offsets have started over
	hot        *hotkeys.Sketch

	decode   decoders
	gathered gathered
	targets  []int32 // of an event's forwards

	packing
	unpacking unpacking

	mismatches []rules.Mismatch // of an event
	spans      spans
}

// Hot is the sketch of keys that get many events.
func (s *intake) Hot() *hotkeys.Sketch { return s.hot }

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
func decodeRecord(s *intake, d *event.Decoder, value []byte, headers []event.Header, key []byte) ([]event.Event, error) {
	decode := d.DecodeMore
	if len(s.gathered.steps) == 0 {
		decode = d.Decode
	}
	events, err := decode(value, headers, key, s.decode.events[:0])
	s.decode.events, s.decode.most = events, max(s.decode.most, len(events))
	return events, err
}

// Forget drops what is kept of records that are counted: their memory may be used for others. All that was
// gathered is stepped.
func (s *intake) Forget() {
	d := &s.decode
	d.input.Forget()
	d.loop.Forget()
	clear(d.events[:min(d.most, cap(d.events))])
	clear(d.headers[:cap(d.headers)])
	d.most = 0
	s.gathered.forget()
	s.unpacking.forget()
}

func (s *intake) match(e *event.Event, at event.Micros) []rules.Work {
	works := s.matcher.Match(e, at)
	s.out.Skipped = append(s.out.Skipped, s.matcher.Skipped...)
	if len(works) == 0 {
		s.tally.noteUnmatched(e)
	}
	return works
}

// owner is the partition that a key belongs to.
func (c *Config) owner(w *rules.Work) int32 { return int32(w.Hash&0x7fffffff) % c.Of }
