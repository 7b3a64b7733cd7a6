package aggregate

import (
	"testing"

	"github.com/tallygate/tallygate/event"
)

// Members with different rule files say so, as long as both run. Neither is refused: a rolling
// restart with a new file must pass through this state.
func TestMembersWithOtherRulesAreNamed(t *testing.T) {
	onRealKafka(t, func(t *testing.T, r *rig) {
		a := r.begin(compile(t, yearly), func(c *Config) { c.Advertise = "a:1" })
		r.emit(hit("u1", "a.b"))
		eventually(t, "one is counted", func() bool { return r.count("u1", "per-year", a) == event.One })
		b := r.start(compile(t, byIPAndUID), func(c *Config) { c.Advertise = "b:1" })
		r.ready(a, b)
		for _, m := range []*member{a, b} {
			eventually(t, "each knows that another one differs", func() bool { return m.counterOf(t, "tallygate_rules_differ") == 1 })
		}
		owners, err := a.owners()
		for p, o := range owners { // a member's rules are not part of its address
			if o.Err == nil && o.Addr != "a:1" && o.Addr != "b:1" {
				t.Errorf("partition %d is at %q, %v", p, o.Addr, err)
			}
		}
		b.end(t)
		eventually(t, "they are alike again", func() bool { return a.counterOf(t, "tallygate_rules_differ") == 0 })
	})
}
