package rules

import (
	"testing"

	"github.com/tallygate/tallygate/event"
)

// For how long verdicts are kept: for the longest block, also of a bucket that is overdrawn, and for the
// longest strict window.
func TestLongestVerdict(t *testing.T) {
	for text, want := range map[string]event.Micros{
		`{name: a, match: {api: x}, limit: 5, per: 1h, then: {block: 5m}}`:                                              5 * event.Minute,
		`{name: a, match: {api: x}, limit: 5, per: 1h, window: tumbling, then: {block: until-reset}}`:                   event.Hour,
		`{name: a, match: {api: x}, limit: 50, per: 1s, burst: 100, window: bucket, then: {block: until-reset}}`:        4 * event.Second,
		`{name: a, match: {api: x}, limit: 1, per: 1d, burst: 10, debt: 9, window: bucket, then: {block: until-reset}}`: 100 * event.Day,
		`{name: a, match: {api: x}, limit: 5, per: 1h, then: {escalate: [5m, forever], forget: 1d}}`:                    36_500 * event.Day,
		`{name: a, match: {api: x}, limit: 5, per: 30d, window: tumbling, strict: true}`:                                30 * event.Day,
	} {
		set := compiled(t, header+"  rules:\n    - "+text+"\n")
		if got := set.LongestVerdict(); got != want {
			t.Errorf("%s: %v, want %v", text, got.Duration(), want.Duration())
		}
	}
}
