package owner

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

// Env is what all partitions of an instance share. It does not change once one was made.
type Env struct {
	Names      topics.Names
	Partitions int32 // how many there are, owned or not

	Client       sarama.Client // asks for offsets
	Urgent, Bulk *fenced.Link  // write: verdicts and the states that they wait for, and all else
	Claims       *kafkalog.Fetcher
	Logs         *kafkalog.Fetcher // of changelogs: no claim waits for these
	Aux          *Aux
	Rules        Rulebook
	Published    Published // nil for nobody
	Metrics      *Metrics
	Log          *slog.Logger

	Instance        string // how this one calls itself in the audit topic
	ProducerTimes   bool   // the time of an event's record is the producer's, not the broker's
	AcceptNewTopic  bool   // go on although a topic was created anew
	MaxDeadLetter   int    // bytes of a record that go to the dead-letter topic
	CheckpointEvery time.Duration

	OnKafkaError func(error)       // is told of each request that failed; it must not block
	Fail         func(error) error // notes an error after which the instance cannot go on, and returns it with ErrFatal
	Closed       func(*Partition)  // is told of each partition that was closed
}

// Session is the group session that a partition is owned in.
type Session struct {
	sarama.ConsumerGroupSession
	End    context.CancelCauseFunc // ends it: all partitions are released, and taken over anew
	Topics map[string]topics.Topic // as they were when it began
}

// Rulebook knows the newest version of the rules. Its methods may be called by any goroutine.
type Rulebook interface {
	Refresh(ctx context.Context) error // no version that is in the topic now is newer than Current then
	Current() *Rules
	Shared() bool                         // the versions go through a topic
	FailedAt() (version int64, why error) // the newest that does not compile here; 0 for none
}

// Rules is a version of the rules, ready to count by.
type Rules struct {
	Number  int64 // 0: a set that is not in the topic
	Set     *rules.Set
	Matches []prometheus.Counter // by limit
}

func (v *Rules) forShard() shard.Rules { return shard.Rules{Number: v.Number, Set: v.Set} }

// Published follows the verdict partitions that this instance owns.
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

// ErrFatal is wrapped by errors that joining the group again cannot cure.
var ErrFatal = errors.New("aggregate: this instance cannot continue")

// ErrReleased is why a partition ended that was released in good order.
var ErrReleased = errors.New("aggregate: the partition was released")

// EndsSession reports whether an error is not its partition's alone: another owner has the
// partition, so this instance may have been replaced in the group; the topics are others; or the
// instance cannot go on.
func EndsSession(err error) bool {
	return errors.Is(err, ErrFatal) || errors.Is(err, fenced.ErrFenced) || errors.Is(err, kafkalog.ErrTopicChanged)
}

// isFinal reports whether an error is the instance's end: the next takeover would meet it again.
func isFinal(err error) bool {
	for _, final := range []error{ErrFatal, shard.ErrFinal, shard.ErrNewerFormat, rules.ErrNewerState} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}
