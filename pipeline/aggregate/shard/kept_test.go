package shard

import (
	"testing"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

func oneLimit(t *testing.T) *Shard {
	t.Helper()
	return New(Config{Of: 1}, Rules{Set: compile(t, "  rules: ["+movingEnds["bucket"]+"]")})
}

// A command is answered with its verdicts, numbered by the key's record, once the last of what it
// changed is published.
func TestACommandIsDoneWithTheLastThatItPublishes(t *testing.T) {
	s := oneLimit(t)
	done := &Done{ID: "c1"}
	s.Acked(&Ack{
		key: followed, done: done, erase: [][]byte{[]byte("gone")},
		verdicts: []*issued{{v: verdict.Verdict{Rule: "a"}}, {v: verdict.Verdict{Rule: "b"}}},
	}, 7, Clock{Local: now()})
	if len(done.Verdicts) != 2 || done.Verdicts[0].Seq != 7 || done.Verdicts[1].Seq != 7 {
		t.Errorf("the answer has %+v, want both verdicts with number 7", done.Verdicts)
	}
	for i, rec := range s.out.Verdicts {
		if last := i == 2; (rec.Ack.done != nil) != last {
			t.Errorf("publication %d carries the answer: %t", i, !last)
		}
	}
	if len(s.out.Verdicts) != 3 || len(s.out.Done) != 0 {
		t.Fatalf("%d publications, want 3; answered already: %v", len(s.out.Verdicts), s.out.Done)
	}
	s.Acked(s.out.Verdicts[2].Ack, 1, Clock{Local: now()})
	if len(s.out.Done) != 1 || s.out.Done[0].ID != "c1" {
		t.Errorf("answers: %+v", s.out.Done)
	}
}

func TestACommandThatPublishesNothingIsDoneAtOnce(t *testing.T) {
	s := oneLimit(t)
	s.Acked(&Ack{key: followed, done: &Done{ID: "c1"}}, 7, Clock{Local: now()})
	if len(s.out.Done) != 1 || s.out.Done[0].ID != "c1" {
		t.Errorf("answers: %+v", s.out.Done)
	}
}

// An exemption is in the state of the key that the command names. Other keys are only unblocked.
func TestACommandExemptsTheKeyThatItNames(t *testing.T) {
	s := oneLimit(t)
	for name, kind := range CommandKinds {
		if kind != rules.CommandExempt {
			continue
		}
		c := &CommandRecord{Command: name, Key: "uid=1"}
		if got := s.commandOn(c, "uid=1", 5, 0).Kind; got != rules.CommandExempt {
			t.Errorf("on its own key it is %v", got)
		}
		if got := s.commandOn(c, "api=a&uid=1", 5, 0).Kind; got != rules.CommandUnblock {
			t.Errorf("on another key it is %v", got)
		}
	}
}

// An end that moves soon after another waits. Before any record has a time there is none to wait
// for.
func TestAnEndThatMovesSoonAgainWaits(t *testing.T) {
	s := oneLimit(t)
	at := now()
	held := func(clock Clock) bool {
		changes := []verdict.Verdict{{Rule: "r", State: verdict.Block, Until: at + event.Hour}}
		moves := []rules.Move{{Rule: "r", From: at + event.Hour - event.Second, Grain: event.Minute}}
		return len(s.holdBack([]byte(followed), changes, moves, clock)) == 0
	}
	if held(Clock{Local: at, Broker: event.NoTime}) {
		t.Error("it waits without a time")
	}
	if !held(Clock{Local: at, Broker: at}) {
		t.Error("it does not wait")
	}
}

// A takeover by itself is no reason for a checkpoint: the last one has the epochs.
func TestATakeoverKnowsTheEpochsOfItsCheckpoint(t *testing.T) {
	s := oneLimit(t)
	epochs := noEpochs
	epochs.Is[Input] = 9
	s.restore(&checkpoint{Version: checkpointVersion, Epochs: &epochs}, Clock{Local: now(), Broker: event.NoTime})
	if s.epochs != epochs || s.epochsNoted != epochs {
		t.Errorf("epochs %+v, noted %+v, want %+v", s.epochs, s.epochsNoted, epochs)
	}
}

// The checkpoint record holds few producers itself. What an older program reads stays as it is up
// to that.
func TestACheckpointHolds64ProducersItself(t *testing.T) {
	p := &producers{}
	for i := range inlineProducers + 1 {
		if rows, inline := p.inline(); !inline || len(rows) != i {
			t.Fatalf("%d producers: inline %t, %d rows", i, inline, len(rows))
		}
		p.repeated(instanceOf(i), 0, 1, 0)
	}
	if _, inline := p.inline(); inline {
		t.Errorf("%d producers are in the record", inlineProducers+1)
	}
}
