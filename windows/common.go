package windows

import "github.com/tallygate/tallygate/event"

// What several kinds have in common; a kind embeds what is true of it.

// headed: a state begins with a head, which has the latest time.
type headed struct{}

func (headed) latest(state []byte) event.Micros { return getLatest(state) }

// onlyHead: an empty counter is but the head.
type onlyHead struct{ headed }

func (onlyHead) empty(_ *Spec, state []byte, _ bool) []byte { return state[:headBytes] }

// noAddSpent: nothing is saved by doing both at once.
type noAddSpent struct{}

func (noAddSpent) addSpent(_ *Spec, state []byte, _ event.Micros, _ event.Decimal) (_ []byte, added Added, spent event.Micros, ok bool) {
	return state, Added{}, 0, false
}

// amounts: it counts amounts.
type amounts struct{ fullAtLimit }

func (amounts) estimates() bool { return false }

func (amounts) addValue(*Spec, []byte, event.Micros, uint64) ([]byte, Added) {
	panic("windows: AddValue needs a Spec that is Distinct")
}

// fullAtLimit: there is no room for more at a count that is the limit.
type fullAtLimit struct{}

func (fullAtLimit) full(limit event.Decimal) event.Decimal { return limit }

// noRefunds: nothing is taken back.
type noRefunds struct{}

func (noRefunds) refundable() bool { return false }

func (noRefunds) take(_ *Spec, state []byte, _ event.Micros, _ event.Decimal) []byte { return state }

func (noRefunds) holds(*Spec, []byte, event.Micros) bool { return false }

// refunds: amounts are taken back.
type refunds struct{}

func (refunds) refundable() bool { return true }

// oneForm: there is one form of states, which goes on as it is.
type oneForm struct{}

func (oneForm) carry(_ *Spec, state []byte, _ *Spec) []byte { return state }
