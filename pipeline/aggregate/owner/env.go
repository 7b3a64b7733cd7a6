package owner

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// Env is the state shared by all partitions of an instance. It does not change after the first partition was made.
type Env struct {
	Names      topics.Names
	Partitions int32 // how many there are, owned or not

	Kafka     Log
	Claims    *kafkalog.Fetcher // reads the sources
	Aux       *Aux
	Rules     Rulebook
	Published Published // nil: verdicts are not followed
	Strict    Strict    // nil: nobody grants permits
	Metrics   *Metrics
	Tracer    Tracer // nil: no trace context is looked at
	Log       *slog.Logger

	Instance        string // the instance's name in the audit topic
	ProducerTimes   bool   // record times are the producers', not the broker's
	AcceptNewTopic  bool   // continue although a topic was recreated
	MaxDeadLetter   int    // bytes of a record that a dead letter may hold
	CheckpointEvery time.Duration
	Forwarding      *Forwarding
	Packs           func() bool   // all members read packs of forwarded events; nil: not
	PackAfter       time.Duration // see shard.Config
	TraceEvery      uint64        // one of so many verdicts without a trace context begins a trace; 0: none

	Closed func(*Partition) // called for each partition that was closed

	// Fail notes an error after which the instance cannot continue, and returns it with ErrFatal.
	// It is called with a partition's lock held, and must not block.
	Fail func(error) error
}

// Session is the group session that a partition is owned in.
type Session struct {
	sarama.ConsumerGroupSession
	End    context.CancelCauseFunc // ends it: all partitions are released and taken over again
	Topics map[string]topics.Topic // as they were when it began
}

// Rulebook knows the newest version of the rules. Its methods may be called by any goroutine,
// without a partition's lock.
type Rulebook interface {
	Refresh(ctx context.Context) error    // makes Current the newest version in the topic
	Current() *Rules                      // never nil
	Shared() bool                         // versions go through a topic
	FailedAt() (version int64, why error) // the newest that does not compile here; 0 for none
}

// Rules is a version of the rules, ready for counting. It does not change.
type Rules struct {
	Number    int64  // 0: the set is not from the topic
	Published uint64 // what those who ask for permits know it by: no other topic has it
	Set       *rules.Set
	Matches   []prometheus.Counter // by limit
}

func (v *Rules) forShard() shard.Rules {
	return shard.Rules{Number: v.Number, Published: v.Published, Set: v.Set}
}

// Published follows the verdict partitions that this instance owns. Offer is called with the
// partition's lock held: none of the methods may block.
type Published interface {
	Own(partition int32)
	Disown(partition int32)
	Offer(partition int32, first, next int64, rec VerdictRecord)
}

// VerdictRecord is an acknowledged record of the verdict topic.
type VerdictRecord struct {
	Offset  int64
	Key     []byte
	Value   []byte       // nil: the key was erased
	At      event.Micros // when it was acknowledged
	Verdict verdict.Verdict
}

// ErrFatal is wrapped by errors that rejoining the group cannot fix.
var ErrFatal = errors.New("aggregate: this instance cannot continue")

// ErrReleased is the cause if a partition was released normally.
var ErrReleased = protocol.ErrReleased

// EndsSession reports whether an error concerns more than its partition: another owner has the
// partition, so the group may have replaced this instance; a topic was replaced; or the instance
// cannot continue.
func EndsSession(err error) bool {
	return errors.Is(err, ErrFatal) || errors.Is(err, fenced.ErrFenced) || errors.Is(err, kafkalog.ErrTopicChanged)
}

// isFinal reports whether an error ends the instance, because every other takeover would meet it
// again.
func isFinal(err error) bool {
	for _, final := range []error{ErrFatal, shard.ErrFinal, shard.ErrNewerFormat, rules.ErrNewerState} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}
