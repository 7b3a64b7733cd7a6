package shard

import (
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// Clock is a reading of the clocks, by a shard's owner.
type Clock struct {
	Local  event.Micros // this machine's
	Broker event.Micros // of the last acknowledgement; event.NoTime before the first
}

// Effects is the work that a shard requests of its owner. Each list is to be carried out in its order; the lists do
// not depend on each other, but a checkpoint waits for all of them.
type Effects struct {
	States    []Append    // to the partition's changelog
	Verdicts  []Append    // to its partition of the verdict topic
	Forwards  []Forward   // to the repartition topic
	Aux       []Aux       // to the dead-letter and the audit topic
	Published []Published // verdicts that are in their topic
	Strict    []Strict    // records about strict limits that are in the verdict topic
	Done      []Done      // commands
	Counted   []Counted   // events whose traces are sampled
	Blown     []Blown     // fuses
	Skipped   []rules.Skip
	Notes     []Note
}

// Append is a record for a topic that only this partition's owner writes.
type Append struct {
	Key, Value []byte // no value: a tombstone
	Urgent     bool   // it is not to wait for a full batch
	Ack        *Ack   // what to tell Acked when it is durable; nil for nothing
}

// Ack tells the shard which Append was acknowledged. Owners hand it back to Acked, and nothing else.
type Ack struct {
	key      string
	verdicts []*issued        // that are durable with it, and to be published then
	erase    [][]byte         // record keys that get a tombstone in the verdict topic behind them
	is       *issued          // that is published with it
	erased   bool             // it is a tombstone
	left     *verdict.Verdict // that is published with it: what is left
	record   Append           // of is, of left, or the tombstone
	done     *Done            // the command that is done when all is acknowledged
	gone     bool             // the level gets a tombstone behind them
	level    *protocol.Level  // that is published when the state is durable
	says     *spoken          // the version of the rules that it names
	grants   *protocol.Grants // that are published then
	saying   *spoken          // that is said then
	own      *protocol.Record // that is published with it: a level, a tombstone of one
}

// Forward is an event for another partition, or a pack of them, as a record's value.
type Forward struct {
	To     int32
	Value  []byte
	Events int
	Packed bool         // it is a pack
	Rules  uint64       // Rules.Published that a pack was made by: its header HeaderRules
	Trace  *event.Trace // its header; nil for none
}

// Aux is a record of auxiliary output, which no count depends on: of a replay it may come twice.
type Aux struct {
	Topic      AuxTopic
	At         time.Time // zero: now
	Key, Value []byte
	Headers    []Header
	Reason     string // of a dead letter
}

// AuxTopic selects a topic of auxiliary output.
type AuxTopic uint8

// The topics of auxiliary output.
const (
	DeadLetters AuxTopic = iota
	Audit
)

// Header is a record's header.
type Header struct{ Key, Value []byte }

// Published is a record that is durable in the verdict topic.
type Published struct {
	Offset     int64
	Key, Value []byte
	At         event.Micros    // when that was known
	Verdict    verdict.Verdict // the zero value for a tombstone
	Broker     event.Micros    // the time of the event that caused it; event.NoTime for none
	Traced     *Traced         // nil: its event was not traced
}

// Strict is a record about strict limits that is durable in the verdict topic.
type Strict struct {
	Offset int64
	Record protocol.Record
}

// Done is a command that is durable and published on one of its keys.
type Done struct {
	ID       string
	Key      string // its text
	Had      bool   // the key had a state
	Verdicts []verdict.Verdict
}

// Blown is a fuse that has blown: its rule is in shadow mode from here on.
type Blown struct {
	Rule string
	Keys int // that the partition has
}

// Note is a line for the log.
type Note struct {
	Level Level
	Text  string
	Args  []any // names and values
}

// Level is the severity of a Note.
type Level uint8

// The levels of notes.
const (
	Info Level = iota
	Warn
	Error
)

// Empty reports whether there is nothing to carry out.
func (e *Effects) Empty() bool {
	return max(len(e.States), len(e.Verdicts), len(e.Forwards), len(e.Aux), len(e.Published), len(e.Strict), len(e.Done), len(e.Counted), len(e.Blown), len(e.Skipped), len(e.Notes)) == 0
}

// Reset empties all lists, for what comes next; it keeps their memory.
func (e *Effects) Reset() {
	e.States = emptied(e.States)
	e.Verdicts = emptied(e.Verdicts)
	e.Forwards = emptied(e.Forwards)
	e.Aux = emptied(e.Aux)
	e.Published = emptied(e.Published)
	e.Strict = emptied(e.Strict)
	e.Done = emptied(e.Done)
	e.Counted = emptied(e.Counted)
	e.Blown = emptied(e.Blown)
	e.Skipped = emptied(e.Skipped)
	e.Notes = emptied(e.Notes)
}

func emptied[T any](list []T) []T {
	clear(list)
	return list[:0]
}
