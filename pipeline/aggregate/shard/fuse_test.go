package shard

import (
	"fmt"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// A key that its first event blocks is one of those that the fuse takes its share of.
func TestAFuseCountsTheKeyThatIsNew(t *testing.T) {
	for share, want := range map[string]int{"100%": 0, "99%": 1} {
		set := compile(t, "  rules: [{name: r, match: {api: a}, limit: 1, per: 1h, window: tumbling, fuse: "+share+", then: {block: until-reset}}]")
		s := New(Config{Of: 1, Topics: simTopics}, Rules{Set: set})
		at := event.Micros(1_774_958_400) * event.Second
		var blown []Blown
		for i := range 30 {
			s.Event(&event.Event{UID: fmt.Sprint(i), API: "a", Time: at, Cost: event.One}, int64(i), at, verdict.Cause{Offset: int64(i)})
			if err := s.Step(Input, int64(i)+1, Clock{Local: at, Broker: event.NoTime}); err != nil {
				t.Fatal(err)
			}
			blown = append(blown, s.Effects().Blown...)
			s.Effects().Reset()
		}
		if len(blown) != want || want == 1 && blown[0] != (Blown{"r", 20}) || len(s.judge.BlownRules()) != want {
			t.Errorf("a fuse of %s, when all of 30 keys are blocked: %v", share, blown)
		}
	}
}
