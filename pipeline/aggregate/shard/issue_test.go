package shard

import (
	"fmt"
	"testing"

	"github.com/tallygate/tallygate/pipeline/verdict"
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
