package shard

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

// simLog is a partition of a topic, in memory. It refuses what an owner appends whose epoch is not
// the newest of its producer id, as Kafka does.
type simLog struct {
	entries []simEntry // an entry's offset is its place
	epochs  map[int32]int
}

type simEntry struct {
	key, value []byte
	headers    record.Headers
	at         event.Micros
	gone       bool // by compaction
}

// append returns false when the producer's epoch is an old one.
func (l *simLog) append(producer int32, epoch int, e simEntry) (offset int64, ok bool) {
	if epoch < l.epochs[producer] {
		return 0, false
	}
	l.entries = append(l.entries, e)
	return int64(len(l.entries) - 1), true
}

// fence appends a fence record: from here on the producer's older epochs are refused.
func (l *simLog) fence(producer int32, epoch int, at event.Micros) {
	if l.epochs == nil {
		l.epochs = map[int32]int{}
	}
	l.epochs[producer] = max(epoch, l.epochs[producer])
	l.append(producer, epoch, simEntry{key: []byte("\x00fence"), value: []byte("{}"), at: at})
}

func (l *simLog) end() int64 { return int64(len(l.entries)) }

// compact drops what a later record of the same key replaces, below an offset.
func (l *simLog) compact(below int64) {
	newest := map[string]int{}
	for i, e := range l.entries[:below] {
		if e.gone || len(e.key) == 0 {
			continue
		}
		if was, ok := newest[string(e.key)]; ok {
			l.entries[was] = simEntry{gone: true}
		}
		newest[string(e.key)] = i
	}
}

// record is the entry at an offset; false where compaction took it.
func (l *simLog) record(offset int64, rec *record.Record) bool {
	e := &l.entries[offset]
	*rec = record.Record{Offset: offset, Timestamp: e.at.Time().UnixMilli(), Key: e.key, Value: e.value, Headers: e.headers}
	return !e.gone
}
