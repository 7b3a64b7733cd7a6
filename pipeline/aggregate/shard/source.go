package shard

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

// NoEpoch is where it is not known which leader took a source's last record.
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

// EpochEnd is where a leader epoch ends in a partition's log.
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
