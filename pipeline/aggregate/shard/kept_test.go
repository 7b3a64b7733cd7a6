package shard

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
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
	for i, rec := range s.log.out.Verdicts {
		if last := i == 2; (rec.Ack.done != nil) != last {
			t.Errorf("publication %d carries the answer: %t", i, !last)
		}
	}
	if n := len(s.log.out.Aux); n != 2 || s.log.out.Aux[0].Topic != Audit || s.log.out.Aux[1].Topic != Audit {
		t.Errorf("%d lines for the audit, want one of each verdict", n)
	}
	if len(s.log.out.Verdicts) != 3 || len(s.log.out.Done) != 0 {
		t.Fatalf("%d publications, want 3; answered already: %v", len(s.log.out.Verdicts), s.log.out.Done)
	}
	s.Acked(s.log.out.Verdicts[2].Ack, 1, Clock{Local: now()})
	if len(s.log.out.Done) != 1 || s.log.out.Done[0].ID != "c1" {
		t.Errorf("answers: %+v", s.log.out.Done)
	}
}

func TestACommandThatPublishesNothingIsDoneAtOnce(t *testing.T) {
	s := oneLimit(t)
	s.Acked(&Ack{key: followed, done: &Done{ID: "c1"}}, 7, Clock{Local: now()})
	if len(s.log.out.Done) != 1 || s.log.out.Done[0].ID != "c1" {
		t.Errorf("answers: %+v", s.log.out.Done)
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
		if got := s.commands.on(c, "uid=1", 5, 0).Kind; got != rules.CommandExempt {
			t.Errorf("on its own key it is %v", got)
		}
		if got := s.commands.on(c, "api=a&uid=1", 5, 0).Kind; got != rules.CommandUnblock {
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
		return len(s.verdicts.holdBack([]byte(followed), changes, moves, clock)) == 0
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
	s.takeover.restore(&checkpoint{Version: checkpointVersion, Epochs: &epochs}, Clock{Local: now(), Broker: event.NoTime})
	if s.log.epochs != epochs || s.log.epochsNoted != epochs {
		t.Errorf("epochs %+v, noted %+v, want %+v", s.log.epochs, s.log.epochsNoted, epochs)
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

// A pass by rules that are not in force any more judges nothing, and says nothing of the one that
// is due.
func TestAPassByOlderRulesEnds(t *testing.T) {
	s := oneLimit(t)
	s.Event(&event.Event{UID: "u1", API: "a", Time: event.NoTime, Cost: event.One}, 0, now(), verdict.Cause{})
	clock := Clock{Local: now(), Broker: event.NoTime}
	if err := s.Step(Input, 1, clock); err != nil {
		t.Fatal(err)
	}
	older, newer := s.rules.Rules, Rules{Number: 2, Published: 2, Set: compile(t, "  rules: ["+movingEnds["panes"]+"]")}
	if err := s.judge.Use(newer); err != nil {
		t.Fatal(err)
	}
	if keys, more := s.judge.NextToJudge(older); keys != nil || more {
		t.Errorf("it goes on with %q", keys)
	}
	s.judge.PartJudged(older)
	if err := s.judge.PassDone(older); err != nil || s.judge.AllJudged() || s.judge.JudgedParts() != 0 {
		t.Errorf("%v; %d parts are judged", err, s.judge.JudgedParts())
	}
	found := 0
	for part := range Parts {
		keys, more := s.judge.NextToJudge(newer)
		if !more {
			t.Fatalf("it ends at part %d", part)
		}
		for _, key := range keys {
			if found++; PartOf(key) != part {
				t.Errorf("%s is in part %d, and not in %d", key, PartOf(key), part)
			}
		}
		s.judge.PartJudged(newer)
	}
	if _, more := s.judge.NextToJudge(newer); more || !s.judge.AllJudged() || found != 1 {
		t.Errorf("it does not end behind the last part; %d keys", found)
	}
	if n, err := s.judge.Key([]byte("uid=gone"), clock); n != 0 || err != nil {
		t.Errorf("a key that has left: %d, %v", n, err)
	}
}

// An event that has no time, in a record that has none, counts nowhere.
func TestAnEventWithoutAnyTime(t *testing.T) {
	s := oneLimit(t)
	clock := Clock{Local: now(), Broker: event.NoTime}
	for offset, stamp := range []int64{-1, clock.Local.Time().UnixMilli()} {
		rec := record.Record{Offset: int64(offset), Timestamp: stamp, Value: []byte(`{"uid":"u1","api":"a"}`)}
		if err := s.Record(Input, &rec, clock); err != nil {
			t.Fatal(err)
		}
		if err := s.Step(Input, int64(offset)+1, clock); err != nil {
			t.Fatal(err)
		}
	}
	if s.log.tally.NoTime != 1 || s.log.tally.Counted != 1 || s.log.Last(Input) != event.Micros(clock.Local.Time().UnixMilli())*event.Millisecond {
		t.Errorf("%+v, the last one at %v", s.log.tally, s.log.Last(Input))
	}
	if s.log.Replayed(); s.log.tally.Replayed != 1 {
		t.Errorf("%d were read again, want 1", s.log.tally.Replayed)
	}
}

// What a checkpoint covers is known as soon as it has begun.
func TestACheckpointKnowsWhatItCovers(t *testing.T) {
	s := oneLimit(t)
	s.Event(&event.Event{UID: "u1", API: "a", Time: event.NoTime, Cost: event.One}, 0, now(), verdict.Cause{})
	if err := s.Step(Loop, 7, Clock{Local: now()}); err != nil {
		t.Fatal(err)
	}
	c, err := s.BeginCheckpoint()
	if err != nil || c.Covers(Input) != 0 || c.Covers(Loop) != 7 {
		t.Fatalf("%+v, %v", c, err)
	}
	if _, err := s.BeginCheckpoint(); !errors.Is(err, ErrTorn) {
		t.Errorf("another one begins behind its cut: %v", err)
	}
	for copied := 0; ; copied++ {
		n, more := c.CopyNext()
		if !more {
			if copied != 1 {
				t.Errorf("%d states are copied, want 1", copied)
			}
			break
		}
		if rec := s.log.out.States[len(s.log.out.States)-1]; n != len(rec.Key)+len(rec.Value) {
			t.Errorf("%d bytes of %s", n, rec.Key)
		}
	}
	c.Covered()
	if c, err := s.BeginCheckpoint(); c != nil || err != nil {
		t.Errorf("there is nothing new: %+v, %v", c, err)
	}
}

// Each list of effects is one to carry out.
func TestEffectsAreEmptyOnlyWithoutAny(t *testing.T) {
	var e Effects
	if !e.Empty() {
		t.Error("there is something in none")
	}
	lists := reflect.ValueOf(&e).Elem()
	for i := range lists.NumField() {
		list := lists.Field(i)
		list.Set(reflect.MakeSlice(list.Type(), 1, 1))
		if e.Empty() {
			t.Errorf("%s: there is nothing", lists.Type().Field(i).Name)
		}
		if e.Reset(); list.Len() != 0 {
			t.Errorf("%s is not reset", lists.Type().Field(i).Name)
		}
	}
}

// What publishes nothing leaves nothing behind, as the end of a key that has left.
func TestNothingIsPublishedOfNothing(t *testing.T) {
	s := oneLimit(t)
	clock := Clock{Local: now(), Broker: now()}
	if err := s.Command(&CommandRecord{Command: "reset", Key: followed}, followed, clock.Broker); err != nil {
		t.Fatal(err)
	}
	if len(s.table.issued) != 0 {
		t.Errorf("%d keys have verdicts", len(s.table.issued))
	}
	s.log.out.Reset()
	s.verdicts.PublishEnds(followed, true, clock)
	v := verdict.Verdict{Rule: "r", State: verdict.Block, Until: clock.Broker + event.Hour}
	s.table.moved.keep("uid=gone", &v, &rules.Move{Rule: "r", From: clock.Broker + event.Minute, Grain: event.Second}, clock.Broker)
	if s.verdicts.EndsWaiting() != 1 {
		t.Error("the end does not wait")
	}
	s.verdicts.PublishEnds("uid=gone", true, clock)
	if !s.log.out.Empty() {
		t.Errorf("%+v", s.log.out)
	}
}

// A copy once took memory while the partition was locked. The collector may have a goroutine that takes memory help,
// or wait: events waited up to 30 ms with it. What a slice copies now has its memory before.
func TestCopiesHaveTheirMemoryBefore(t *testing.T) {
	s := oneLimit(t)
	const keys = 3000
	for i := range keys {
		e := event.Event{UID: fmt.Sprintf("u%04d", i), API: "a", Time: event.NoTime, Cost: event.One}
		s.Event(&e, 0, now(), verdict.Cause{})
		if err := s.Step(Input, int64(i+1), Clock{Local: now()}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := s.BeginCheckpoint()
	if err != nil {
		t.Fatal(err)
	}
	slices, copied := 0, 0
	for more := true; more; slices++ {
		c.MakeRoom()
		before := &c.space[:1][0]
		for more && c.HasRoom() {
			var n int
			if n, more = c.CopyNext(); n > 0 {
				copied++
			}
		}
		if &c.space[:1][0] != before {
			t.Fatalf("slice %d took memory while it copied", slices)
		}
		s.Effects().Reset()
	}
	if copied != keys || slices < 2 {
		t.Errorf("%d states in %d slices, want %d in several", copied, slices, keys)
	}
}
