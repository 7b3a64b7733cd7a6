package rules

import (
	"strings"
	"testing"

	"github.com/tallygate/tallygate/pipeline/event"
)

// A key of more than 65,535 bytes wrapped the length that stands ahead of it in memory: its counts were lost, each
// event took memory that nobody freed, and whoever chooses an attribute's value could do that.
func TestAnEventWithAHugeKeyDoesNotMatch(t *testing.T) {
	set := compiled(t, severalShapes)
	m := set.NewMatcher()
	match := func(campaign string) (keys []string, skipped []Skip) {
		e := &event.Event{UID: "u", API: "x", Cost: event.One, Attrs: []event.Attr{{Name: "campaign", Value: event.Value{Kind: event.String, Text: campaign}}}}
		for _, w := range m.Match(e, noon) {
			keys = append(keys, string(w.Key))
		}
		return keys, m.Skipped
	}
	const around = len("attrs.campaign=&uid=u")
	if keys, skipped := match(strings.Repeat("x", event.MaxKey-around)); len(keys) != 2 || len(skipped) != 0 {
		t.Errorf("of the longest: %d keys, %v", len(keys), skipped)
	}
	for _, long := range []string{strings.Repeat("x", event.MaxKey-around+1), strings.Repeat("é", 11_000)} {
		keys, skipped := match(long)
		if len(keys) != 1 || keys[0] != "uid=u" || len(skipped) != 1 || skipped[0].Reason != SkipKey || skipped[0].Rule.Name != "c" {
			t.Errorf("of one more: %.80q, %v", keys, skipped)
		}
	}
	if keys, skipped := match("short again"); len(keys) != 2 || len(skipped) != 0 {
		t.Errorf("afterwards: %q, %v", keys, skipped)
	}
}
