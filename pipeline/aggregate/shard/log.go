package shard

import (
	"github.com/tallygate/tallygate/event"
)

// Log holds offsets, epochs and pending effects.
type Log struct {
	cfg   Config
	out   Effects
	tally Tally

	next        [Sources]int64        // the first offset that is not processed
	covered     [Sources]int64        // the first offset behind the last durable checkpoint
	broker      event.Micros          // the greatest broker time seen
	last        [Sources]event.Micros // see Last
	epochs      Epochs                // of the leaders that took what is counted
	epochsNoted Epochs                // as the last durable checkpoint has them
	accepted    bool                  // offsets have started over, and no checkpoint says so yet
	start       int64                 // of the changelog
}

// Next is the first offset of a source that is not processed.
func (l *Log) Next(src Source) int64 { return l.next[src] }

// Last is the broker time of the last record of the input, and of the loop that of the event that
// was forwarded last.
func (l *Log) Last(src Source) event.Micros { return l.last[src] }

// Behind returns a reader's first offset in a source, and the leader that took the record below.
func (l *Log) Behind(src Source) (next int64, epoch int32) {
	if l.next[src] <= l.epochs.From[src] { // nothing of that epoch was counted
		return l.next[src], NoEpoch
	}
	return l.next[src], l.epochs.Is[src]
}

// Epoch is the leader epoch that a source is in.
func (l *Log) Epoch(src Source) int32 { return l.epochs.Is[src] }

// EnterEpoch notes that what comes next of a source was taken by another leader. A checkpoint is
// due before that.
func (l *Log) EnterEpoch(src Source, epoch int32) {
	l.epochs.Is[src], l.epochs.From[src] = epoch, l.next[src]
}

// Time is the latest broker time that is counted: keys are swept, and judged besides events, by it.
// This machine's clock bounds it: one record from the future, of a producer or a broker whose clock
// was ahead, must not end other keys' windows. One that is behind only keeps keys for longer.
func (l *Log) Time(c Clock) event.Micros { return min(l.broker, c.Local) }

// Replayed notes a record that was read and is below what is processed.
func (l *Log) Replayed() { l.tally.Replayed++ }

// note leaves a line for the log.
func (l *Log) note(level Level, text string, args ...any) {
	l.out.Notes = append(l.out.Notes, Note{level, text, args})
}

// Source is one of the two topics that a partition's events come from.
type Source uint8

// The two sources.
const (
	Input   Source = iota // the event topic's partition
	Loop                  // the repartition topic: what other partitions forwarded
	Sources               // how many there are
)

// applied is the place of the last event that was applied: what is at or below it is skipped. The
// zero value is below every event.
type applied struct {
	next  int64 // the record's offset plus one
	index int   // of the event in its record
}

// covers reports whether the event at (offset, index) is at or below a.
func (a applied) covers(offset int64, index int) bool {
	return a.next > offset+1 || a.next == offset+1 && a.index >= index
}

// NoEpoch is the epoch of a source's last record whose leader is not known.
const NoEpoch int32 = -1

// Epochs are the leader epochs that a partition is in. A log that was cut and has grown again has
// other records at offsets that were counted: offsets do not tell, epochs do (KIP-320). The
// checkpoint names the epoch of the leader that took what was counted last. Keys' applied offsets
// may be ahead of the checkpoint; for them to be of the epoch that it names, too, there is a
// checkpoint between the last event of an epoch and the first of the next.
type Epochs struct {
	Is   [Sources]int32 `json:"is"`   // NoEpoch where it is not known
	From [Sources]int64 `json:"from"` // what was counted from there on is of Is
}

var noEpochs = Epochs{Is: [Sources]int32{NoEpoch, NoEpoch}}

// EpochEnd is the end of a leader epoch in a partition's log.
type EpochEnd struct {
	Known bool // false: not asked, or the broker does not say
	// Epoch is the one that was asked for or, where the log has nothing of that, the one before
	// it; -1 is none.
	Epoch int32
	End   int64 // the first offset behind it; -1 when the leader does not know
}

// lost reports whether the log has lost records below next, the last of which had this epoch.
func (e EpochEnd) lost(epoch int32, next int64) bool {
	return e.End >= 0 && (e.Epoch < epoch && e.Epoch >= 0 || e.End < next)
}

// durable reports whether a durable checkpoint covers all that a block has seen.
func (l *Log) durable(b block) bool {
	for src, a := range b.applied {
		if a.next > l.covered[src] {
			return false
		}
	}
	return true
}
