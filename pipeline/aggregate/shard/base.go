package shard

import (
	"github.com/tallygate/tallygate/pipeline/event"
)

// base is how far the shard is, and what it asks for.
type base struct {
	cfg   Config
	by    []byte // cfg.Instance as a JSON string
	out   Effects
	tally Tally

	next        [Sources]int64        // the first offset that is not processed
	covered     [Sources]int64        // the first offset behind the last durable checkpoint
	broker      event.Micros          // the greatest broker time seen
	last        [Sources]event.Micros // see Last
	epochs      Epochs                // of the leaders that took what is counted
	epochsNoted Epochs                // as the last durable checkpoint has them
}

// Effects is what the calls since the last Reset of it ask for.
func (s *base) Effects() *Effects { return &s.out }

// Tally is what has become of events. Its owner sets it to zero when it has looked.
func (s *base) Tally() *Tally { return &s.tally }

// Next is the first offset of a source that is not processed.
func (s *base) Next(src Source) int64 { return s.next[src] }

// Last is the broker time of the last record of the input, and of the loop that of the event that
// was forwarded last.
func (s *base) Last(src Source) event.Micros { return s.last[src] }

// Behind says where a reader of a source begins, and which leader took what lies below.
func (s *base) Behind(src Source) (next int64, epoch int32) {
	if s.next[src] <= s.epochs.From[src] { // nothing of that epoch was counted
		return s.next[src], NoEpoch
	}
	return s.next[src], s.epochs.Is[src]
}

// Epoch is the leader epoch that a source is in.
func (s *base) Epoch(src Source) int32 { return s.epochs.Is[src] }

// EnterEpoch notes that what comes next of a source was taken by another leader. A checkpoint is
// due before that.
func (s *base) EnterEpoch(src Source, epoch int32) {
	s.epochs.Is[src], s.epochs.From[src] = epoch, s.next[src]
}

// Time is the latest broker time that is counted: keys are swept, and judged besides events, by it.
// This machine's clock bounds it: one record from the future, of a producer or a broker whose clock
// was ahead, must not end other keys' windows. One that is behind only keeps keys for longer.
func (s *base) Time(c Clock) event.Micros { return min(s.broker, c.Local) }

// Replayed notes a record that was read and is below what is processed.
func (s *base) Replayed() { s.tally.Replayed++ }

// note leaves a line for the log.
func (s *base) note(level Level, text string, args ...any) {
	s.out.Notes = append(s.out.Notes, Note{level, text, args})
}
