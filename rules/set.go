// Package rules turns YAML into a compiled Set, finds the rules that an event matches, and
// steps a key's state: an event in, verdict changes out.
//
// It is pure: no I/O, no clock, no goroutine. Time is an argument.
//
// Compile makes a Set. An event goes through Set.EventTime, which gives it its one time, then
// Matcher.Match, which says what it means for which keys, then, where each key's state is,
// Stepper.Step. Set.Explain says what a state holds.
package rules

import (
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/windows"
)

// Set is a compiled rule set. It is immutable and may be used by many goroutines, each with
// a Matcher of its own.
type Set struct {
	Name   string
	Rules  []*Rule
	Limits []*Limit    // of all rules, in their order; Limit.Index is the place in here
	Shapes []*KeyShape // the distinct keys that rules count by

	MaxLateness event.Micros // an event older than this before its broker time is too old
	TooOldNow   bool         // too old events get the broker time instead of being dropped
	RecentIDs   int          // how many of a key's latest ids are remembered
	RecentFor   event.Micros // and for how long

	Hash [32]byte // of the source and of the zone data: two sets with one Hash are the same

	Warnings []Warning // what is allowed and probably not meant, in the order of the file

	byHash map[SectionHash]*Limit
	index  *apiIndex
}

// KeyShape is a set of dimensions to count by. All rules of one shape share one state a key.
type KeyShape struct {
	Dims   []string // sorted: attrs.NAME, ip, ip/64, uid
	HasUID bool     // then the key belongs to the uid's partition, else to its text's
	Index  int      // the place in Set.Shapes
}

// Rule is what to count, over which windows, against which limits, and what follows.
type Rule struct {
	Index int // the place in Set.Rules
	Name  string
	Shape *KeyShape
	Mode  verdict.Mode
	Then  Then

	Count   CountKind
	SumAttr string // of CountSum: the attribute; "" sums the cost

	APIs   []string // what its verdicts cover
	Limits []*Limit

	match ruleMatch // api weights, outcome, attrs, when
}

// CountKind is what a rule counts.
type CountKind uint8

// What a rule counts.
const (
	CountEvents CountKind = iota // weight × cost, in whole numbers
	CountSum                     // SumAttr × weight × cost, an exact decimal
)

// Then is what follows when a key is over a limit.
type Then struct {
	UntilReset bool         // a quota: the block ends when the count is below the limit
	Block      event.Micros // a penalty: how long
	Action     verdict.Action
}

// SectionHash names a limit's counters in a key's state: of the limit's name, window, key and
// count, so that a changed rule starts empty, and only it.
type SectionHash [6]byte

// Limit is one limit of a rule: what a verdict is about.
type Limit struct {
	Index  int
	Rule   *Rule
	Name   string // rule, or rule/limit for a stacked one
	Limit  event.Decimal
	Window windows.Spec
	PerMin event.Micros // the window's length, the shortest one for calendar units
	PerMax event.Micros // the longest one: how long a key's counters may matter
	Grain  event.Micros // a moved until is published again rounded up to a multiple of this
	Hash   SectionHash
}

// Work is what one event means for one key.
type Work struct {
	Shape *KeyShape
	Key   []byte // the record-key text; valid until the Matcher's next Match
	Hash  uint32 // murmur2 of the uid, or of Key when the shape has none: partition = Hash & 0x7fffffff mod n
	Hits  []Hit
}

// Hit is one limit that an event counts under, and by how much.
type Hit struct {
	Limit  *Limit
	Amount event.Decimal // zero or more
}

// Input is one event as Step sees it.
type Input struct {
	Key   []byte       // the key's record-key text
	Hits  []Hit        // of one Work
	At    event.Micros // the event's one time: Set.EventTime
	ID    string       // "" when absent
	Cause verdict.Cause
}

// Result is what Step did. Its slices are valid until the Stepper's next Step.
type Result struct {
	Repeat  bool              // the id was counted before: nothing changed
	Late    int               // limits that the event came too late for
	Changes []verdict.Verdict // in order, without Seq; their Key and APIs may be shared, copy to keep
	SpentAt event.Micros      // when the key's state no longer matters, if nothing more happens
}
