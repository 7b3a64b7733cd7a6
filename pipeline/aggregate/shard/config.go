package shard

import (
	"errors"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
)

// Config is a shard's settings.
type Config struct {
	ID, Of int32 // the partition, and how many there are
	Topics Topics

	// ProducerTimes says that the event topic has its producers' times: a block that is over by the
	// broker's clock was perhaps over when its event was sent, and is published all the same.
	ProducerTimes bool
	// AcceptNewTopic lets the partition go on where a topic is another one, or was cut.
	AcceptNewTopic bool
	// MaxDeadLetter bounds the bytes of a record in a dead letter.
	MaxDeadLetter int
	// Instance is this program's name in audit records.
	Instance string
	// Seed is of the sample that finds hot keys.
	Seed uint64
	// NoLevels says that nobody publishes levels, nor what is left: none are kept until somebody does.
	NoLevels bool
	// PackAfter is the time for which the partition forwards whole events after it was opened and after each change
	// of its rules. Others take a moment to get these, and count a whole event by their own.
	PackAfter event.Micros
	// Settled is the reading of the newest rules before the takeover.
	Settled Settled
	// Trace is told what became of each event on each of its keys. Nil is for no trace.
	Trace func(*Stepped)
	// Spans has the contexts of traces followed, from records' headers into verdicts and Effects.Counted.
	// SpanEvery gives one of so many verdicts that have none a trace of its own; 0 is none.
	Spans     bool
	SpanEvery uint64
}

// Settled is the end of the repartition topic when the newest rules were read: the records below were not made by
// newer ones.
type Settled struct {
	Below  int64 // an offset of the partition of the repartition topic
	Newest int64 // the number of the newest rules, also where they do not compile here
}

// Topics are those that a checkpoint speaks of.
type Topics struct{ Events, Loop, Table, Verdicts Topic }

// Topic is a topic and Kafka's id of it: no other topic of the same name will ever have it.
type Topic struct{ Name, ID string }

func (t *Topics) all() [4]Topic { return [4]Topic{t.Events, t.Loop, t.Table, t.Verdicts} }

func (t *Topics) of(src Source) Topic {
	if src == Loop {
		return t.Loop
	}
	return t.Events
}

// Stepped is the fate of an event on one of its keys. It holds until Trace returns.
type Stepped struct {
	Shape  *rules.KeyShape
	Key    []byte
	Hits   []rules.Hit // the limits that count it
	Result *rules.Result
	Above  []rules.Above   // the limits that it counted above
	Counts []rules.Counted // of a draft: its counts under the sought limits
}

// ErrFinal is wrapped by errors that another takeover of the partition does not resolve.
var ErrFinal = errors.New("shard: retrying does not help")

// ErrNewerFormat says that a record is of a format that this program does not know.
var ErrNewerFormat = errors.New("shard: written by a newer program")
