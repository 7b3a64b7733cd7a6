package shard

import (
	"bytes"
	"errors"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Record takes in the next record of a source. What it counts is gathered until Step; the record
// may be dropped when the effects are carried out.
func (s *intake) Record(src Source, rec *record.Record, clock Clock) error {
	s.look(&s.judging.rules, clock)
	if src == Loop {
		return s.loopRecord(rec, clock)
	}
	s.inputRecord(rec)
	return nil
}

// inputRecord applies what a producer sent: an event, several, or something else.
func (s *intake) inputRecord(rec *record.Record) {
	broker := BrokerTime(rec)
	s.broker, s.last[Input] = max(s.broker, broker), broker
	if s.producers.has(rec) {
		s.tally.ProducerRepeat++
		return
	}
	d := &s.decode
	d.headers = CloudEvents(d.headers[:0], rec.Headers)
	events, err := decodeRecord(s, &d.input, rec.Value, d.headers, rec.Key)
	if err != nil {
		s.deadLetter(Input, rec, d.input.Bad, err)
	}
	s.tally.DroppedIPs += d.input.DroppedIPs - d.droppedIPs
	d.droppedIPs = d.input.DroppedIPs
	if d.suspects != d.input.Suspects {
		s.tally.Suspects = s.tally.Suspects.Plus(d.input.Suspects.Minus(d.suspects))
		d.suspects = d.input.Suspects
	}
	o := occurrence{gatheredStep: gatheredStep{
		broker: broker, trace: s.spans.of(rec), cause: verdict.Cause{Partition: s.cfg.ID, Offset: rec.Offset},
	}}
	for i := range events {
		o.event, o.place, o.cause.ID = &events[i], applied{rec.Offset + 1, i}, events[i].ID
		misplaced := s.inputEvent(&o, d.input.Raw(i))
		if misplaced && len(events) == 1 { // events of several uids may be in one record
			s.tally.noteMisplaced(rec)
		}
	}
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

// Event takes in an event that is in no record, as from an access log. Its number takes the
// offset's place: each is greater than the one before.
func (s *intake) Event(e *event.Event, number int64, broker event.Micros, cause verdict.Cause) {
	s.broker = max(s.broker, broker)
	s.inputEvent(&occurrence{event: e, gatheredStep: gatheredStep{broker: broker, place: applied{number + 1, 0}, cause: cause}}, nil)
}

// inputEvent gathers the steps of the keys that this partition owns, and forwards the event, once
// each, to the partitions that own the others: raw, as it came, unless it is part of a CloudEvent. It reports
// whether the event was sent to another partition than that of its uid.
func (s *intake) inputEvent(o *occurrence, raw []byte) (misplaced bool) {
	e, broker := o.event, o.broker
	s.compare(e)
	if event.TooFarAhead(e.Time, broker) {
		s.tally.Suspects.TimeAhead++
	}
	o.id, o.source = e.ID, Input
	o.at, o.counts = s.rules.Set.EventTime(e, broker)
	permits := s.permitKeys(e, broker)
	if !o.counts {
		if o.at == event.NoTime {
			s.tally.NoTime++
		} else {
			s.tally.TooOld++
		}
		s.spans.uncounted(o)
		if len(permits) == 0 {
			return false
		}
		o.at = permits[0].At
	}
	works := s.match(e, o.at)
	if len(works) == 0 {
		s.spans.uncounted(o)
	}
	targets := s.gather(o, works, permits, s.targets[:0])
	s.targets = targets
	misplaced = len(targets) > 0 && s.misplaces(works)
	for _, target := range targets {
		if len(permits) > 0 || !s.pack(target, o, works, s.generation) {
			s.forward(target, o, raw)
		}
	}
	return misplaced
}

// forward asks for an event to be forwarded, behind what is packed for the same partition.
func (s *intake) forward(target int32, o *occurrence, raw []byte) {
	s.flush(target)
	from, value := origin{s.cfg.ID, o.place.next - 1, o.place.index, s.generation}, []byte(nil)
	if raw != nil {
		value = appendForwardRaw(nil, from, o.broker, raw)
	} else {
		value = appendForward(nil, from, o.broker, o.event)
	}
	s.out.Forwards = append(s.out.Forwards, Forward{To: target, Value: value, Events: 1, Trace: o.trace})
}

// loopRecord counts an event that another partition forwarded, unless it has come before: an
// owner forwards again after a crash, in the same order.
func (s *intake) loopRecord(rec *record.Record, clock Clock) error {
	if isOwnerRecord(rec.Key) {
		return nil
	}
	if isCommand(rec.Value) {
		return s.commandRecord(rec, clock)
	}
	if isLost(rec.Value) {
		s.lostRecord(rec)
		return nil
	}
	if isPack(rec.Value) {
		return s.packRecord(rec)
	}
	from, broker, body, err := decodeForward(rec.Value)
	if err != nil {
		if errors.Is(err, ErrNewerFormat) {
			return err
		}
		s.deadLetter(Loop, rec, nil, err)
		return nil
	}
	s.broker, s.last[Loop] = max(s.broker, broker), broker
	if s.origins[from.partition].covers(from) {
		s.tally.Replayed++
		return nil
	}
	s.origins[from.partition] = seen{applied{from.offset + 1, from.index}, from.generation}
	events, err := decodeRecord(s, &s.decode.loop, body, nil, nil)
	if err != nil || len(events) != 1 {
		s.deadLetter(Loop, rec, s.decode.loop.Bad, err)
		return nil
	}
	e := &events[0]
	o := occurrence{event: e, gatheredStep: gatheredStep{
		id: e.ID, broker: broker, source: Loop, place: applied{rec.Offset + 1, 0},
		cause: verdict.Cause{ID: e.ID, Partition: from.partition, Offset: from.offset}, trace: s.spans.of(rec),
	}}
	o.at, o.counts = s.rules.Set.EventTime(e, broker)
	permits := s.permitKeys(e, broker)
	if !o.counts && len(permits) == 0 {
		return nil // its source tallied it
	}
	if !o.counts {
		o.at = permits[0].At
	}
	s.gather(&o, s.match(e, o.at), permits, s.targets[:0])
	return nil
}

// isOwnerRecord reports whether a record of this key is an owner's own, such as a fence record.
func isOwnerRecord(key []byte) bool { return bytes.HasPrefix(key, []byte{0}) }
