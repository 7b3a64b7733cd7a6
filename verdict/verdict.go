// Package verdict is "this key is over this rule until T", or its clearing, and its wire form.
//
// It links nothing but the standard library and the event's units: applications carry it.
package verdict

import (
	"math"
	"math/bits"

	"github.com/tallygate/tallygate/event"
)

// State tells what a verdict says.
type State uint8

// The states of a verdict.
const (
	Block State = iota // the key is over the rule until Until
	Clear              // the block ended before its Until; Since = Until = that moment
	Warn               // a notice: the key passed a step of the rule's limit
	Left               // what the key has left: Limit - Count until Until; nothing is known when Until is not after Since
)

// Mode tells whether a verdict is enforced.
type Mode uint8

// The modes of a verdict.
const (
	Enforce Mode = iota
	Shadow       // counted and shown, never enforced
)

// Manual is the Rule of verdicts by command. No rule has that name.
const Manual = "manual"

// Verdict is one decision about one key by one rule.
type Verdict struct {
	Rule   string      // the rule's name, or rule/limit, or rule/candidate: for operators and services
	Public string      // what denied callers are told the rule is called; "" is nothing
	Key    []event.Dim // sorted by name
	State  State
	Mode   Mode
	Action Action
	APIs   []string // what it covers: names and patterns
	Count  event.Decimal
	Limit  event.Decimal
	Per    event.Micros // of a throttle: Limit are let through in this time, see Interval; of a Left: the window's length; 0: not known
	Since  event.Micros // the event time at which it fell
	Until  event.Micros // in force: Since <= t < Until
	Seq    int64        // orders the verdicts of one key and rule; of a Left the offset of its record, and 0 in the record
	Step   string       // of a Warn: "50%"
	Cause  Cause
	Trace  event.Trace // of the span that issued it, where the event that caused it was traced; the zero value for none
}

// Cause is the event that triggered a verdict.
type Cause struct {
	ID        string
	Partition int32
	Offset    int64
}

// Interval returns how far apart waiting requests are let through, so that no more than the limit
// pass in Per. An amount of 1 is taken for each. Without Per, as in verdicts that older programs
// issued, it is the limit a second: waiting requests are let through one by one, and soon. Without a
// limit it is a tenth of a second. It is at least a microsecond.
func (v *Verdict) Interval() event.Micros {
	if v.Limit <= 0 {
		return event.Second / 10
	}
	per := v.Per
	if per <= 0 {
		per = event.Second
	}
	whole, rest := bits.Mul64(uint64(per), uint64(event.One))
	if whole >= uint64(v.Limit) {
		return math.MaxInt64
	}
	every, _ := bits.Div64(whole, rest, uint64(v.Limit))
	return event.Micros(min(max(every, 1), math.MaxInt64))
}

// InForce reports whether the verdict is in force at a moment.
func (v *Verdict) InForce(at event.Micros) bool {
	return v.State != Clear && v.Since <= at && at < v.Until
}
