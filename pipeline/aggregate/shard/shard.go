package shard

import (
	"encoding/hex"
	"errors"

	"github.com/tallygate/tallygate/pipeline/aggregate/hotkeys"
	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

// ErrFinal is wrapped by errors that taking the partition over again cannot cure.
var ErrFinal = errors.New("shard: retrying does not help")

// Config is a shard's settings.
type Config struct {
	ID, Of int32 // the partition, and how many there are
	Topics Topics

	// ProducerTimes says that the event topic has its producers' times: a block that is over by the broker's clock
	// was perhaps over when its event was sent, and is published all the same.
	ProducerTimes bool
	// AcceptNewTopic lets the partition go on where a topic is another one, or was cut.
	AcceptNewTopic bool
	// MaxDeadLetter is how many bytes of a record go into a dead letter.
	MaxDeadLetter int
	// Instance is this program's name in audit records.
	Instance string
	// Seed is of the sample that finds hot keys.
	Seed uint64
	// Trace is told what became of each event on each of its keys. Nil: nobody asks.
	Trace func(*Stepped)
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

// Rules is a version of the group's rules. Number is 0 for a set that is in no topic.
type Rules struct {
	Number int64
	Set    *rules.Set
}

func (r *Rules) hash() string { return hex.EncodeToString(r.Set.Hash[:]) }

// Shard is one partition's counting. Make it with New.
//
// It is built in layers, each of which calls only those below it: base, issuing, judging, intake, and
// Shard itself, which has what a takeover and a checkpoint see of all of them.
type Shard struct {
	intake

	accepted  bool  // offsets have started over, and no checkpoint says so yet
	start     int64 // of the changelog
	cutting   bool  // a checkpoint has begun, and is not covered
	restoring *restoring
}

// base is how far the shard is, and what it asks for.
type base struct {
	cfg   Config
	by    []byte // cfg.Instance as a JSON string
	out   Effects
	tally Tally

	next        [Sources]int64        // the first offset that is not processed
	covered     [Sources]int64        // the first offset that the last durable checkpoint does not cover
	broker      event.Micros          // the greatest broker time seen
	last        [Sources]event.Micros // the broker time of the last record of the input; of the loop that of the event forwarded last
	epochs      Epochs                // of the leaders that took what is counted
	epochsNoted Epochs                // as the last durable checkpoint has them
}

// issuing has the keys' states, and the verdicts on their way out.
type issuing struct {
	base
	table  *state.Table
	issued issuedVerdicts
	moved  movedEnds
}

// judging has the rules, and which of them the keys are judged by.
type judging struct {
	issuing
	exempt exemptions // that commands gave

	rules   Rules // all below follows from it
	judged  judged
	matcher *rules.Matcher
	stepper *rules.Stepper

	lastCheckpoint []byte // the last checkpoint record that was asked for, without what is judged
	scratch        []byte // a block in the making
}

// intake takes events and commands in, each once on each key.
type intake struct {
	judging
	origins    map[int32]seen // of forwarded events, by their partition
	producers  producers
	generation uint32 // how often the input's offsets have started over
	hot        *hotkeys.Sketch

	decode   decoders
	gathered gathered
	targets  []int32 // of an event's forwards
}

// New returns an empty shard that counts by these rules.
func New(cfg Config, r Rules) *Shard {
	s := &Shard{restoring: &restoring{leftovers: map[string]leftover{}, parts: map[string][]byte{}}}
	s.base = base{
		cfg: cfg, by: jsonString(cfg.Instance),
		broker: event.NoTime, last: [Sources]event.Micros{event.NoTime, event.NoTime},
		epochs: noEpochs, epochsNoted: noEpochs,
	}
	s.table, s.issued = state.New(), issuedVerdicts{}
	s.origins, s.producers, s.hot = map[int32]seen{}, producers{own: cfg.ID}, hotkeys.New(cfg.Seed)
	s.setRules(r)
	s.judged = judgedBy(r.Set) // nothing is there yet
	return s
}

// Effects is what the calls since the last Reset of it ask for.
func (s *base) Effects() *Effects { return &s.out }

// Tally is what has become of events. Its owner sets it to zero when it has looked.
func (s *base) Tally() *Tally { return &s.tally }

// Rules is the version that the shard counts by.
func (s *judging) Rules() Rules { return s.rules }

// Keys is how many keys there are.
func (s *issuing) Keys() int { return s.table.Len() }

// Bytes is how much memory the keys take.
func (s *issuing) Bytes() int64 { return s.table.Bytes() }

// Next is the first offset of a source that is not processed.
func (s *base) Next(src Source) int64 { return s.next[src] }

// Last is the broker time of the last record of the input, and of the loop that of the event that was forwarded last.
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

// EnterEpoch notes that what comes next of a source was taken by another leader. A checkpoint is due before that.
func (s *base) EnterEpoch(src Source, epoch int32) {
	s.epochs.Is[src], s.epochs.From[src] = epoch, s.next[src]
}

// Hot is the sketch of keys that get many events.
func (s *intake) Hot() *hotkeys.Sketch { return s.hot }

// Time is the latest broker time that is counted: keys are swept, and judged besides events, by it. This machine's clock bounds
// it: one record from the future, of a producer or a broker whose clock was ahead, must not end other keys'
// windows. One that is behind only keeps keys for longer.
func (s *base) Time(c Clock) event.Micros { return min(s.broker, c.Local) }
