package shard

import (
	"bytes"
	"errors"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/hotkeys"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
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

// CloudEvents appends those of a record's headers that make it a CloudEvent.
func CloudEvents(dst []event.Header, headers record.Headers) []event.Header {
	for {
		key, value, ok := headers.Next()
		if !ok {
			return dst
		}
		if event.IsCloudEvents(key) {
			dst = append(dst, event.Header{Key: string(key), Value: value})
		}
	}
}

// isOwnerRecord reports whether a record of this key is an owner's own, such as a fence record.
func isOwnerRecord(key []byte) bool { return bytes.HasPrefix(key, []byte{0}) }

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

// misplaces reports whether works of an event belong to another partition because of its uid. Where keys have
// no uid, producers can do nothing about it.
func (in *intake) misplaces(works []rules.Work) bool {
	for i := range works {
		if works[i].Shape.HasUID && in.log.cfg.owner(&works[i]) != in.log.cfg.ID {
			return true
		}
	}
	return false
}

// compare tallies what an event contradicts of the vocabulary. Only the partition that an event was sent
// to does, once for each record that it reads.
func (in *intake) compare(e *event.Event) {
	if in.rules.vocabulary == nil {
		return
	}
	in.mismatches = in.rules.vocabulary.Event(in.mismatches[:0], e)
	for _, m := range in.mismatches {
		in.log.tally.Mismatches[m]++
	}
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

// record counts a record of a source, all but its steps.
func (in *intake) record(src Source, rec *record.Record, clock Clock) error {
	in.packs.look(&in.rules.Rules, clock)
	if src == Loop {
		return in.loopRecord(rec, clock)
	}
	in.inputRecord(rec)
	return nil
}

// inputRecord applies what a producer sent: an event, several, or something else.
func (in *intake) inputRecord(rec *record.Record) {
	broker := BrokerTime(rec)
	in.log.broker, in.log.last[Input] = max(in.log.broker, broker), broker
	if in.producers.has(rec) {
		in.log.tally.ProducerRepeat++
		return
	}
	d := &in.decode
	d.headers = CloudEvents(d.headers[:0], rec.Headers)
	events, err := in.decodeRecord(&d.input, rec.Value, d.headers, rec.Key)
	if err != nil {
		in.log.deadLetter(Input, rec, d.input.Bad, err)
	}
	in.log.tally.DroppedIPs += d.input.DroppedIPs - d.droppedIPs
	d.droppedIPs = d.input.DroppedIPs
	if d.suspects != d.input.Suspects {
		in.log.tally.Suspects = in.log.tally.Suspects.Plus(d.input.Suspects.Minus(d.suspects))
		d.suspects = d.input.Suspects
	}
	o := occurrence{gatheredStep: gatheredStep{
		broker: broker, trace: in.spans.of(rec), cause: verdict.Cause{Partition: in.log.cfg.ID, Offset: rec.Offset},
	}}
	for i := range events {
		o.event, o.place, o.cause.ID = &events[i], applied{rec.Offset + 1, i}, events[i].ID
		misplaced := in.inputEvent(&o, d.input.Raw(i))
		if misplaced && len(events) == 1 { // events of several uids may be in one record
			in.log.tally.noteMisplaced(rec)
		}
	}
}

// event is record for an event without one.
func (in *intake) event(e *event.Event, number int64, broker event.Micros, cause verdict.Cause) {
	in.log.broker = max(in.log.broker, broker)
	in.inputEvent(&occurrence{event: e, gatheredStep: gatheredStep{broker: broker, place: applied{number + 1, 0}, cause: cause}}, nil)
}

// inputEvent gathers the steps of the keys that this partition owns, and forwards the event, once
// each, to the partitions that own the others: raw, as it came, unless it is part of a CloudEvent. It reports
// whether the event was sent to another partition than that of its uid.
func (in *intake) inputEvent(o *occurrence, raw []byte) (misplaced bool) {
	e, broker := o.event, o.broker
	in.compare(e)
	if event.TooFarAhead(e.Time, broker) {
		in.log.tally.Suspects.TimeAhead++
	}
	o.id, o.source = e.ID, Input
	o.at, o.counts = in.rules.Set.EventTime(e, broker)
	permits := in.permitKeys(e, broker)
	if !o.counts {
		if o.at == event.NoTime {
			in.log.tally.NoTime++
		} else {
			in.log.tally.TooOld++
		}
		in.spans.uncounted(o)
		if len(permits) == 0 {
			return false
		}
		o.at = permits[0].At
	}
	works := in.match(e, o.at)
	if len(works) == 0 {
		in.spans.uncounted(o)
	}
	targets := in.gather(o, works, permits, in.targets[:0])
	in.targets = targets
	misplaced = len(targets) > 0 && in.misplaces(works)
	for _, target := range targets {
		if len(permits) > 0 || !in.packs.pack(target, o, works, in.generation) {
			in.forward(target, o, raw)
		}
	}
	return misplaced
}

// forward asks for an event to be forwarded, behind what is packed for the same partition.
func (in *intake) forward(target int32, o *occurrence, raw []byte) {
	in.packs.flush(target)
	from, value := origin{in.log.cfg.ID, o.place.next - 1, o.place.index, in.generation}, []byte(nil)
	if raw != nil {
		value = appendForwardRaw(nil, from, o.broker, raw)
	} else {
		value = appendForward(nil, from, o.broker, o.event)
	}
	in.log.out.Forwards = append(in.log.out.Forwards, Forward{To: target, Value: value, Events: 1, Trace: o.trace})
}

// loopRecord counts an event that another partition forwarded, unless it has come before: an
// owner forwards again after a crash, in the same order.
func (in *intake) loopRecord(rec *record.Record, clock Clock) error {
	if isOwnerRecord(rec.Key) {
		return nil
	}
	if isCommand(rec.Value) {
		if err := in.stepGathered(clock); err != nil { // events ahead of it come first
			return err
		}
		return in.commands.record(rec)
	}
	if isLost(rec.Value) {
		in.lostRecord(rec)
		return nil
	}
	if isPack(rec.Value) {
		return in.packRecord(rec)
	}
	from, broker, body, err := decodeForward(rec.Value)
	if err != nil {
		if errors.Is(err, ErrNewerFormat) {
			return err
		}
		in.log.deadLetter(Loop, rec, nil, err)
		return nil
	}
	in.log.broker, in.log.last[Loop] = max(in.log.broker, broker), broker
	if in.origins[from.partition].covers(from) {
		in.log.tally.Replayed++
		return nil
	}
	in.origins[from.partition] = seen{applied{from.offset + 1, from.index}, from.generation}
	events, err := in.decodeRecord(&in.decode.loop, body, nil, nil)
	if err != nil || len(events) != 1 {
		in.log.deadLetter(Loop, rec, in.decode.loop.Bad, err)
		return nil
	}
	e := &events[0]
	o := occurrence{event: e, gatheredStep: gatheredStep{
		id: e.ID, broker: broker, source: Loop, place: applied{rec.Offset + 1, 0},
		cause: verdict.Cause{ID: e.ID, Partition: from.partition, Offset: from.offset}, trace: in.spans.of(rec),
	}}
	o.at, o.counts = in.rules.Set.EventTime(e, broker)
	permits := in.permitKeys(e, broker)
	if !o.counts && len(permits) == 0 {
		return nil // its source tallied it
	}
	if !o.counts {
		o.at = permits[0].At
	}
	in.gather(&o, in.match(e, o.at), permits, in.targets[:0])
	return nil
}
