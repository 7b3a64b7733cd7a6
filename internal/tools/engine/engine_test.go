package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/engine"
	"github.com/tallygate/tallygate/internal/tools/engine/enginetest"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// An event counts as covered by the verdicts that are in force for it, whatever the rule counts.
func TestCovered(t *testing.T) {
	set, err := rules.Compile("ads.yaml", []byte(`
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: ads}
spec:
  rules:
    - name: shown
      match: {api: ad.shown}
      limit: 2
      per: 1h
      window: tumbling
      then: {block: until-reset, apis: [ad.select]}
`))
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(set)
	var out engine.Outcome
	start, _ := event.ParseMicros("2026-11-21T10:00:00Z")
	for i, api := range []string{"ad.shown", "ad.select", "ad.shown", "ad.select", "ad.shown", "ad.select"} {
		e.Apply(&event.Event{UID: "u", API: api, Cost: event.One, Time: start + event.Micros(i)*event.Minute, BrokerTime: event.NoTime}, event.NoTime, verdict.Cause{}, &out)
	}
	for h := range e.Held() {
		if h.Covered != 2 || h.Issued != 1 {
			t.Errorf("%d events are covered by %d verdicts, want 2 by 1", h.Covered, h.Issued)
		}
	}
	who := event.Event{UID: "u", API: "ad.select"}
	if got := e.Decide(&who, start+10*event.Minute); len(got) != 1 || got[0].Rule != "shown" {
		t.Errorf("ten minutes on %v is in force, want shown", got)
	}
	if got := e.Decide(&who, start+event.Hour); len(got) != 0 {
		t.Errorf("an hour on %v is in force, want nothing", got)
	}
}

// TestNoLevelsAreKept: nobody publishes them, and a copy of each key would wait until the end.
func TestNoLevelsAreKept(t *testing.T) {
	set, err := rules.Compile("shop.yaml", []byte(strings.Replace(enginetest.ShopRules, "limit: 100\n", "limit: 100\n      strict: true\n", 1)))
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(set)
	var out engine.Outcome
	for i := range 100 {
		e.Apply(&event.Event{API: "a", UID: fmt.Sprint("u", i), Cost: event.One}, event.Second, verdict.Cause{Offset: int64(i)}, &out)
	}
	if e.Keys() != 100 || e.Shard().Levels().Waiting() {
		t.Errorf("%d keys; levels wait: %v", e.Keys(), e.Shard().Levels().Waiting())
	}
}

// A tier that depends on time alone comes and goes without an event: nobody sends one, and at night the key is let in.
func TestATierByTimeNeedsNoEvent(t *testing.T) {
	for _, more := range []string{"", "strict: true\n      ", "candidate: {limit: 2}\n      ", "quota: true\n      public: calls\n      "} {
		set, err := rules.Compile("calls.yaml", []byte(`
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: calls}
spec:
  rules:
    - name: calls
      match: {api: x}
      limit: 3
      per: day
      window: calendar
      timezone: Asia/Shanghai
      `+more+`tiers: [{when: 'time.In(timezone("Asia/Shanghai")).Hour() >= 22', limit: 9}]
      then: {block: until-reset}
`))
		if err != nil {
			t.Fatal(err)
		}
		e := engine.New(set)
		var out engine.Outcome
		start, _ := event.ParseMicros("2026-11-21T10:00:00+08:00")
		for i := range event.Micros(3) {
			e.Apply(&event.Event{UID: "u", API: "x", Cost: event.One, Time: start + i, BrokerTime: event.NoTime}, start+i, verdict.Cause{}, &out)
		}
		who := event.Event{UID: "u", API: "x"}
		denied := func(at event.Micros) (n int) {
			for _, held := range e.Decide(&who, at) {
				if held.Mode == verdict.Enforce {
					n++
				}
			}
			return n
		}
		if night := start + 12*event.Hour; denied(night-1) != 1 || denied(night) != 0 {
			t.Errorf("%q: %d verdicts before the night and %d in it, want 1 and 0", more, denied(night-1), denied(night))
		}
	}
}
