package shard

import (
	"fmt"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// Events above a limit are in the tally once each, with how long after the verdict they happened;
// what is applied already is not counted again.
func TestTheTallyHasEventsAboveLimits(t *testing.T) {
	set := compile(t, `
  rules:
    - {name: r, match: {api: a}, limit: 2, per: 1h, window: tumbling, then: {block: until-reset}}
    - {name: watched, match: {api: a}, limit: 1, per: 1h, window: tumbling, mode: shadow, then: {block: until-reset}}`)
	s := New(Config{Of: 1, Topics: simTopics}, Rules{Set: set})
	noon := event.Micros(1_774_958_400)*event.Second + event.Minute
	apply := func(number int64, at event.Micros) {
		t.Helper()
		s.Event(&event.Event{UID: "u", API: "a", Time: at, Cost: event.One}, number, at, verdict.Cause{Offset: number})
		if err := s.Step(Input, number+1, Clock{Local: at, Broker: event.NoTime}); err != nil {
			t.Fatal(err)
		}
		s.Effects().Reset()
	}
	for number, after := range []event.Micros{-event.Second, 0, event.Millisecond, event.Millisecond + 1, 40 * event.Millisecond, 2 * event.Minute} {
		apply(int64(number), noon+after)
		apply(int64(number), noon+after)
	}
	r, watched := &s.Tally().Overshoot[0], &s.Tally().Overshoot[1]
	delays := [len(OvershootBounds) + 1]uint64{0: 1, 1: 1, 5: 1, len(OvershootBounds): 1} // the third event's is a millisecond at the most
	if r.Events != 4 || r.Shadow != 0 || r.Delays != delays || r.Delay != 2*event.Minute+42*event.Millisecond+1 {
		t.Errorf("above the limit: %+v", r)
	}
	if want := (Overshoot{Shadow: 5}); *watched != want {
		t.Errorf("above the limit in shadow mode: %+v", watched)
	}
	if got := fmt.Sprint(s.Tally().Near); got != "[1 1]" {
		t.Errorf("near the limits: %s", got)
	}
	if got := fmt.Sprint(s.Tally().Counted, s.Tally().Replayed, r.Empty(), watched.Empty()); got != "6 6 false false" {
		t.Errorf("counted, replayed, empty: %s", got)
	}
}
