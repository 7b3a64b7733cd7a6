package shard

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
)

// compile compiles the spec of a rule set.
func compile(t testing.TB, spec string) *rules.Set {
	t.Helper()
	set, err := rules.Compile("test.yaml", []byte("apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: test}\nspec:\n"+spec))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func now() event.Micros { return event.FromTime(time.Now()) }

// lookAtEnds is the interval of an owner's looks at ends that wait.
const lookAtEnds = 50 * time.Millisecond
