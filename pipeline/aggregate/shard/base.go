package shard

import (
	"github.com/tallygate/tallygate/pipeline/event"
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

// Behind says where a reader of a source begins, and which leader took what lies below.
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
