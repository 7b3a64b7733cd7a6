// Package verdict is "this key is over this rule until T", or its clearing, and its wire form.
//
// It links nothing but the standard library and the event's units: applications carry it.
package verdict

import "github.com/tallygate/tallygate/pipeline/event"

// State tells what a verdict says.
type State uint8

// The states of a verdict.
const (
	Block State = iota // the key is over the rule until Until
	Clear              // the block ended before its Until; Since = Until = that moment
	Warn               // a notice: the key passed a step of the rule's limit
)

// Mode tells whether a verdict is enforced.
type Mode uint8

// The modes of a verdict.
const (
	Enforce Mode = iota
	Shadow       // counted and shown, never enforced
)

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
	Since  event.Micros // the event time at which it fell
	Until  event.Micros // in force: Since <= t < Until
	Seq    int64        // orders the verdicts of one key and rule
	Step   string       // of a Warn: "50%"
	Cause  Cause
}

// Cause is the event that triggered a verdict.
type Cause struct {
	ID        string
	Partition int32
	Offset    int64
}

// InForce reports whether the verdict is in force at a moment.
func (v *Verdict) InForce(at event.Micros) bool {
	return v.State != Clear && v.Since <= at && at < v.Until
}
