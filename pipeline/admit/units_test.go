package admit

import (
	"testing"

	"github.com/tallygate/tallygate/event"
)

// Half a dollar is less than fifty thousand tokens, but not less room: a call of too many tokens was told that its
// money was used up, and when that comes back.
func TestLimitsOfOneKeyCountDifferentThings(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.rules(1, `    - {name: money, match: {api: call}, count: {sum: attrs.usd}, limit: 0.5, per: 1d, window: tumbling, strict: true}
    - {name: tokens, match: {api: call}, count: {sum: attrs.tokens}, limit: 50k, per: 1m, window: tumbling, strict: true}
`)
		a := r.admitter()
		for _, c := range []struct {
			usd, tokens event.Decimal
			by          string
			granted     bool
		}{
			{event.One / 10, 60_000 * event.One, "tokens", false},
			{event.One, 10 * event.One, "money", false},
			{event.One / 10, 40_000 * event.One, "tokens", true},
		} {
			p, err := a.Admit(t.Context(), Request{API: "call", Dims: []event.Dim{{Name: "uid", Value: "42"}}, Attrs: []event.Attr{
				{Name: "usd", Value: event.NumberValue(c.usd)}, {Name: "tokens", Value: event.NumberValue(c.tokens)},
			}})
			if err != nil || p.Admitted != c.granted || p.By == nil || p.By.Name != c.by {
				t.Errorf("%+v: %+v, %v", c, p, err)
			}
		}
	})
}
