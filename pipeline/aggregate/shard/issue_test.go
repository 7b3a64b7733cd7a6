package shard

import (
	"fmt"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

func TestLastOfEach(t *testing.T) {
	say := func(rule string, state verdict.State) verdict.Verdict {
		return verdict.Verdict{Rule: rule, State: state}
	}
	changes := []verdict.Verdict{
		say("a", verdict.Clear), say("b", verdict.Clear), say("a", verdict.Warn), say("a", verdict.Warn), say("a", verdict.Block), say("c", verdict.Block), say("c", verdict.Clear),
	}
	var got []string
	for _, v := range lastOfEach(changes) {
		got = append(got, v.Rule+" "+v.State.String())
	}
	if want := "[b clear a warn a warn a block c clear]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// A verdict that a key's state has unpublished has the number of that state's record, or the one
// that it was published with before. Of several on one record key the newest stands for all.
func TestLeftoversHaveTheirNumbers(t *testing.T) {
	body := func(rule string, state verdict.State) []byte {
		v := verdict.Verdict{Rule: rule, State: state, Key: []event.Dim{{Name: "uid", Value: "u1"}}}
		return verdict.AppendJSON(nil, &v)
	}
	l := leftover{offset: 7, verdicts: []unpublished{
		{0, body("a", verdict.Block)}, {5, body("b", verdict.Block)}, {-1, body("a", verdict.Clear)}, {0, body("c", verdict.Block)},
	}}
	list, err := l.issued()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, is := range list {
		got = append(got, fmt.Sprint(is.v.Rule, " ", is.v.State, " ", is.v.Seq, " ", is.seq))
	}
	if want := "[a clear 7 7 b block 5 5 c block 0 0]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// The owner is told where each record of the verdict topic is, also of those that are no verdict from a state.
func TestWhatIsPublishedSaysWhereItIs(t *testing.T) {
	s := oneLimit(t)
	for i, a := range []*Ack{{is: &issued{broker: 3}}, {erased: true}, {left: &verdict.Verdict{}}} {
		a.record = Append{Key: []byte{byte(i)}, Value: []byte("body")}
		s.Acked(a, int64(10+i), Clock{Local: 5, Broker: 7})
		got, broker := s.Effects().Published[i], event.NoTime
		if a.is != nil {
			broker = a.is.broker
		}
		if got.Offset != int64(10+i) || got.Key[0] != byte(i) || string(got.Value) != "body" || got.At != 5 || got.Broker != broker {
			t.Errorf("%+v", got)
		}
	}
}
