package verdict

import (
	"cmp"

	"github.com/tallygate/tallygate/event"
)

// Stronger reports whether a wins over b where both cover a request and are in force. It is the one
// definition of which verdict decides: enforcers, replays and rule tests name the same one.
func Stronger(a, b *Verdict) bool { return Compare(a, b) < 0 }

// Compare orders verdicts on one request, the strongest first: those that decide, then blocks in
// shadow mode, then notices; among these the stronger action, then the later until. The rule's name
// makes the order total.
func Compare(a, b *Verdict) int { return CompareUntil(a, a.Until, b, b.Until) }

// CompareUntil is Compare for verdicts whose until is given beside them. Enforcers keep one Verdict
// for all keys of a rule, and an until for each key.
func CompareUntil(a *Verdict, aUntil event.Micros, b *Verdict, bUntil event.Micros) int {
	if c := cmp.Compare(a.rank(), b.rank()); c != 0 {
		return c
	}
	if a.Action != b.Action {
		return cmp.Compare(b.Action, a.Action)
	}
	if aUntil != bUntil {
		return cmp.Compare(bUntil, aUntil)
	}
	return cmp.Compare(a.Rule, b.Rule)
}

// Decides reports whether the verdict is one that decides requests: a block that is enforced.
func (v *Verdict) Decides() bool { return v.State == Block && v.Mode == Enforce }

// rank is 0 for verdicts that decide. A clear is in force at no time, and ranks last.
func (v *Verdict) rank() int {
	switch {
	case v.Decides():
		return 0
	case v.State == Block:
		return 1
	}
	return 2
}
