package shard

import (
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

// BrokerTime is a record's time; event.NoTime when it has none, as its producer may leave it out
// where the topic takes the producer's.
func BrokerTime(rec *record.Record) event.Micros {
	const none = -1
	if rec.Timestamp == none {
		return event.NoTime
	}
	return event.FromTime(rec.Time())
}

// senderOf is what an emitter says of a record by its headers: its instance, the partition that it
// sent the record to, and the record's number there. No instance or 0 is what does not come from an
// emitter. Without a partition it is the one that the record is in.
func senderOf(headers record.Headers, partition int32) (instance []byte, to int32, seq uint64) {
	to = partition
	for {
		key, value, ok := headers.Next()
		if !ok {
			return instance, to, seq
		}
		switch string(key) {
		case event.HeaderInstance:
			instance = value
		case event.HeaderSequence:
			seq, _ = event.ParseSequence(value)
		case event.HeaderPartition:
			if named, ok := event.ParsePartition(value); ok {
				to = named
			}
		}
	}
}

// Repeats finds the records that an emitter's retry put into a partition's log twice, as its Shard
// does: for those who read the log otherwise. Make it with NewRepeats.
type Repeats struct{ producers producers }

// NewRepeats knows no emitter of the partition yet.
func NewRepeats(partition int32) *Repeats { return &Repeats{producers{own: partition}} }

// Has notes a record, and reports whether it was seen before. Records come in the order of the log.
func (r *Repeats) Has(rec *record.Record) bool { return r.producers.has(rec) }

// has is Repeats.Has.
func (s *producers) has(rec *record.Record) bool {
	instance, to, seq := senderOf(rec.Headers, s.own)
	return len(instance) > 0 && seq > 0 && s.repeated(instance, to, seq, BrokerTime(rec))
}
