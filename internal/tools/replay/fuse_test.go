package replay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/engine/enginetest"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

const fusedRules = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: fused}
spec:
  rules: [{name: a, match: {api: x}, limit: 1, per: 1h, fuse: 10%, then: {block: until-reset}}]
`

// Fuses blow in a replay as they do live, and the summary says when.
func TestAReplayBlowsFuses(t *testing.T) {
	set, err := rules.Compile("fused.yaml", []byte(fusedRules))
	if err != nil {
		t.Fatal(err)
	}
	r := newRun(set)
	start, _ := event.ParseMicros("2026-11-21T10:00:00Z")
	var modes []verdict.Mode
	for i := range 30 {
		at := start + event.Micros(i)*event.Second
		r.apply(&Record{Event: event.Event{UID: fmt.Sprint("u", i), API: "x", Cost: event.One, Time: at}, Broker: event.NoTime})
		for _, v := range r.out.Changes {
			modes = append(modes, v.Mode)
		}
	}
	for i, mode := range modes {
		if want := i >= 19; (mode == verdict.Shadow) != want {
			t.Errorf("verdict %d is %v", i+1, mode)
		}
	}
	tally := r.finish()
	if blown := tally.Rules[0].Blown; len(modes) != 30 || blown != start+19*event.Second {
		t.Errorf("%d verdicts, the fuse blew at %v", len(modes), blown)
	}
	var text strings.Builder
	if err := (&Result{Tally: tally}).write(&text, false); err != nil || !strings.Contains(text.String(), "a: the fuse blew at 2026-11-21T10:00:19Z") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// An event without any time is not one that is too old.
func TestAnEventWithoutATimeIsTalliedSo(t *testing.T) {
	r := newRun(enginetest.Set(t))
	r.apply(&Record{Event: event.Event{UID: "u1", API: "home", Cost: event.One, Time: event.NoTime}, Broker: event.NoTime})
	if got := r.finish(); got.NoTime != 1 || got.TooOld != 0 || got.Unmatched != 0 || got.Events != 1 {
		t.Errorf("%+v", got)
	}
}
