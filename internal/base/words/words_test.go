package words

import (
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
)

func TestWords(t *testing.T) {
	if got := Cell("a\tb\xff\u202ecd", 6); got != `a\tb\xff\u202e`+"c…" {
		t.Errorf("foreign text is %q", got)
	}
	if got := Plural(1, "key") + Plural(2, "key") + OrDash(""); got != "1 key2 keys-" {
		t.Error(got)
	}
	if got := Ended(`did you mean "limit"?`) + Ended(" wait") + Ended(" It is read."); got != `did you mean "limit"? wait. It is read.` {
		t.Error(got)
	}
	if got := Span(26*time.Hour + time.Minute); got != "1d 2h" {
		t.Error(got)
	}
}

func TestASumWithRoomForAFractionIsNotDenied(t *testing.T) {
	rule := func(sum bool, remaining, held event.Decimal) *api.ExplainedRule {
		return &api.ExplainedRule{Strict: &api.StrictStanding{Sum: sum, Limit: event.One / 100, Held: held, Remaining: remaining, ResetsAt: event.NoTime}}
	}
	if rule(true, event.One/100, 0).Denied() || !rule(true, 0, 0).Denied() || !rule(false, event.One/2, 0).Denied() {
		t.Error("a sum is denied when nothing is left, a count when less than one is")
	}
	for held, want := range map[event.Decimal]string{0: "a reset does.", event.One / 100: "what is under way ends."} {
		if got := Denial(rule(true, 0, held)); !strings.HasSuffix(got, want) {
			t.Errorf("with %s under way of 0.01: %s", held, got)
		}
	}
}
