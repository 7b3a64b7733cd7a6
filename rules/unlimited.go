package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/windows"
)

// Unlimited stands where a number is compared with counts, for keys without a limit. It can't be 0, which allows
// nothing, and can't be the greatest number, which sums reach. Answers of the API have 0 for it, and say of a limit
// of 0 that it is closed: see Explanation.Bound.
const Unlimited event.Decimal = -1

// lowest is the lower of two limits.
func lowest(a, b event.Decimal) event.Decimal {
	if a == Unlimited || b != Unlimited && b < a {
		return b
	}
	return a
}

// full is the least count by which a limit is reached. A limit of 0 is reached by anything: an empty window is below it,
// or its quota would never end.
func full(w *windows.Spec, limit event.Decimal) event.Decimal { return w.Full(max(limit, 1)) }

// below is the first moment from which a window's count does not reach a limit, if nothing more happens.
func below(w *windows.Spec, window []byte, limit event.Decimal) event.Micros {
	return w.Below(window, max(limit, 1))
}

// shown is a limit as answers have it.
func shown(limit event.Decimal) (number event.Decimal, closed bool) {
	return max(limit, 0), limit == 0
}

// Bound is the explanation's limit as counts are compared with it.
func (x *Explanation) Bound() event.Decimal {
	if x.Limit == 0 && !x.Closed {
		return Unlimited
	}
	return x.Limit
}
