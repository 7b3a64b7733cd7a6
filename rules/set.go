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
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/document"
	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/rules/internal/network"
	"github.com/tallygate/tallygate/rules/when"
	"github.com/tallygate/tallygate/verdict"
	"github.com/tallygate/tallygate/windows"
)

// Set is a compiled rule set. It is immutable and may be used by many goroutines, each with
// a Matcher of its own.
type Set struct {
	Name   string
	Rules  []*Rule     // those that events are counted by, strict ones among them
	Limits []*Limit    // of Rules, in their order; Limit.Index is the place in here
	Shapes []*KeyShape // the distinct keys that Rules count by

	InFlight []*Rule // strict rules over what is under way: no event counts there
	Instance []*Rule // those of ScopeInstance

	MaxLateness event.Micros // an event older than this before its broker time is too old
	TooOldNow   bool         // too old events get the broker time instead of being dropped
	RecentIDs   int          // how many of a key's latest ids are remembered
	RecentFor   event.Micros // and for how long

	Hash  [32]byte          // of the source, its files and the zone data: two sets with one Hash are the same
	Files map[string][]byte // other files that the source names, as they were read

	Outdated Errors    // what CompilePublished accepted, and a file may not have
	Warnings []Warning // what is allowed and probably not meant, in the order of the file

	expiring []expiring

	all    []*Rule // in the order of the file
	byHash byHash
	index  *apiIndex[*Rule]

	vocabulary *Vocabulary             // nil: none is declared
	networks   map[string]*network.Set // lists that predicates name
}

// KeyShape is a set of dimensions to count by. All rules of one shape share one state a key.
type KeyShape struct {
	Dims   []string // sorted: all, or some of api, attrs.NAME, ip, ip/24 and the like, uid; of ScopeInstance also none
	HasUID bool     // then the key belongs to the uid's partition, else to its text's
	Index  int      // the place in Set.Shapes; 0 of rules that are not in Set.Rules

	parts []keyDim // Dims, taken apart
}

// Rule defines one rule: events, windows, limits and consequences.
type Rule struct {
	Index  int // the place in Set.Rules, Set.InFlight or Set.Instance
	Name   string
	Public string // what denied callers are told it is called; "" is nothing
	Shape  *KeyShape
	Mode   verdict.Mode
	Then   Then

	Scope   Scope
	Strict  *Strict        // nil: it is not strict
	Action  verdict.Action // what a request meets that gets no permit, or that the process does not let in
	MaxKeys int            // of ScopeInstance: how many keys a process keeps

	Count   CountKind
	Attr    string // of CountSum and CountDistinct: the attribute; "" sums the cost
	Field   string // of CountDistinct without Attr: api, ip or uid
	Refunds bool   // events are remembered, so that others may take them back

	APIs []string // what its verdicts cover
	// DeniesMore: it names an API to cover of which it counts only some requests, by what no check knows.
	DeniesMore bool
	Limits     []*Limit
	Fuse       event.Decimal // the share of a partition's keys that it may block; 0: any
	Notify     *Notify       // who is told its verdicts; nil: nobody is

	match      ruleMatch // api weights, outcome, attrs, when
	reset      *reset    // which events empty the windows; nil: none
	underWay   bool      // its limits are InFlight
	warn       []WarnStep
	exempt     []Exemption
	exemptKeys *exemptIndex // of exempt; nil when there are none
}

// CountKind selects the amount that an event adds.
type CountKind uint8

// What a rule counts.
const (
	CountEvents   CountKind = iota // weight × cost, in whole numbers
	CountSum                       // Attr × weight × cost, an exact decimal
	CountDistinct                  // how many values of Attr or Field
)

// Then is the consequence of a key over a limit.
type Then struct {
	None       bool           // nothing: the rule only warns
	UntilReset bool           // a quota: the block ends when the count is below the limit
	Steps      []event.Micros // a penalty: how long; of Escalates one after the other, the last one again and again
	Escalates  bool           // each new verdict takes the next step
	Forget     event.Micros   // Escalates: so long past the last verdict's end the next one is a first one
	ByStep     bool           // Escalates: each Forget that has passed takes one step back, not all
	Extend     bool           // a penalty: every event under it moves its end
	Reset      bool           // a penalty: the window is emptied when it is issued
	At         At
	Action     verdict.Action
}

// At is the count that triggers a verdict.
type At uint8

// A quota is issued when the limit is reached, a penalty when it is exceeded, unless the rule says
// otherwise.
const (
	AtDefault At = iota
	AtReached
	AtExceeded
)

// reached tells whether the limit itself triggers the verdict.
func (t *Then) reached() bool { return t.At == AtReached || t.At == AtDefault && t.UntilReset }

// Tier is a limit for some events' keys.
type Tier struct {
	Limit event.Decimal // may be Unlimited
	when  *when.Predicate
	parts *when.Parts // of when; nil under a rule of ScopeInstance
	text  string      // of the predicate
	id    uint64      // a hash of the text: what states know the tier by
	timed bool        // the predicate depends on the time
}

// When is the tier's predicate, as it was written.
func (t *Tier) When() string { return t.text }

// WarnStep is a share of a limit at which a notice is given.
type WarnStep struct {
	Text  string        // as it was written: 80%
	Share event.Decimal // 0.8
}

// SectionHash names a limit's counters in a key's state: of the limit's name, window, key and
// count, so that a changed rule starts empty, and only it.
type SectionHash = keystate.SectionHash

// Limit is one limit of a rule: what a verdict is about.
type Limit struct {
	Index  int // the place in Set.Limits; of other rules, in Rule.Limits
	Rule   *Rule
	Name   string        // rule, or rule/limit for a stacked one
	Limit  event.Decimal // as it is written; of a bucket: the rate, so much in Window.Per
	Burst  event.Decimal // of a bucket: so much at once; 0 of other windows
	Debt   event.Decimal // of a bucket: by how many bursts it may be overdrawn
	Window windows.Spec  // without a Kind when InFlight

	Strict   bool   // a request needs a permit under it
	InFlight bool   // it counts what is under way now, in no window
	WarmUp   WarmUp // of a bucket of ScopeInstance
	Quota    bool   // what keys have left is published: see Left
	Sought   bool   // of a draft: its number is sought, so it is counted and not judged

	KeyLimits
	GrantsMost event.Decimal // what grants by commands may add up to for one key; 0: any amount
	Tries      bool          // Candidate is tried beside, by shadow verdicts
	Candidate  event.Decimal
	Shadow     bool       // the limit is a candidate itself, with counters of its own
	Warn       []WarnStep // the least first

	PerMin event.Micros // the window's length, the shortest one for calendar units
	PerMax event.Micros // the longest one: how long a key's counters may matter
	Grain  event.Micros // a moved until is published again rounded up to a multiple of this
	Hash   SectionHash

	beside  *Limit       // of a candidate with counters of its own: the live limit, whose counts it begins with; nil of a bucket's
	formers []former     // see formerSections
	panes   event.Micros // how long a sliding window's panes are, or were

	plain         bool          // see isPlain
	quietTo       event.Decimal // see quietest
	nearFrom      event.Decimal // see nearest
	judged        JudgedBy      // another one asks for judging the counts again
	displayHashes [2]uint32     // of what a verdict shows besides numbers: as it is, and in shadow mode
}

// Work is one event's work for one key.
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
	Tier   int           // 0: none holds; else the number of the tier, from 1, or one more for Told; KeepTier
	Value  uint64        // of a distinct count: the value's hash; of a refund: the named event's
	Cost   event.Decimal // under a rule with refunds: the event's cost
	Refund bool          // the event takes Cost back from the one that Value names; Amount is 0
	Reset  bool          // the event empties the window up to its time; Amount is 0
	Told   event.Decimal // of a limit that an attribute tells: what it tells, if Tier says so
	Tells  bool          // the event only tells Tier and Told: it counts nothing, and Amount is 0
}

// IsPlain reports whether the hit's limit, amount and value say all of it, whatever position its limit's
// tiers have.
func (h *Hit) IsPlain() bool {
	return !h.Refund && !h.Reset && !h.Tells && !h.Limit.asks() && !h.Limit.Rule.Refunds
}

// KeepTier is a Hit's Tier that leaves the key the tier that it has.
const KeepTier = -1

// Input is one event as Step sees it.
type Input struct {
	Key   []byte       // the key's record-key text
	Hits  []Hit        // of one Work
	At    event.Micros // the event's one time: Set.EventTime
	ID    string       // "" when absent
	Cause verdict.Cause

	// Permit is the id of the permit that the key has for the event under strict rules; "" for none. An
	// event whose permit the key has seen is a repeat, as one whose ID it has seen.
	Permit string
	// PermitAt is the time of the grant, which is the event's time for strict limits; 0: At is.
	PermitAt event.Micros
	// Lost says that the permit counts by itself, as nobody told what became of its action. Should the
	// action's event still come, it counts under all limits but the strict ones.
	Lost bool

	Active int // the partition's active keys, for the fuses; 0: they are not looked at
}

// Result is the result of Step. Its slices are valid until the Stepper's next Step.
type Result struct {
	Repeat  bool              // the id was counted before: nothing changed
	Unknown bool              // a refund of an event that no rule remembers: nothing changed
	Tells   bool              // the event counts nothing: at most it tells the key's limits
	Same    bool              // the state is as it was
	Late    int               // limits that the event came too late for
	Blown   []*Rule           // rules whose fuse this event blew: they are in shadow mode from here on
	Changes []verdict.Verdict // in order, without Seq; their Key and APIs may be shared, copy to keep
	Moves   []Move            // which of them may wait
	SpentAt event.Micros      // when the key's state no longer matters, if nothing more happens
}

// Move says of a changed block that nothing but its end is another, and that later: while the end
// that it had is ahead, it makes no difference to anybody.
type Move struct {
	Rule  string       // the verdict's
	From  event.Micros // the end that it had
	Grain event.Micros // there need not be more than one publication in that time
}

// ruleMatch selects the events that a rule counts; all of it must hold.
type ruleMatch struct {
	apis       []apiWeight
	outcomes   []string // any of them; none: every one but event.OutcomeLimited, or every one
	anyOutcome bool     // every one
	byOutcome  outcomeWeights
	attrs      []attrMatch
	when       *when.Predicate // nil: always
	parts      *when.Parts     // of when, of a strict rule, and of one whose limits events tell
	strict     bool            // it is of a strict rule: what is not known before the action may match
}

// attrMatch is an attribute that has one of some values.
type attrMatch struct {
	name   string
	values []string
	among  map[string]bool // values, where there are many; nil: there are few
}

// manyValues is from how many values on a map finds one sooner than a list.
const manyValues = 16

func newAttrMatch(name string, values []string) attrMatch {
	a := attrMatch{name: name, values: values}
	if len(values) >= manyValues {
		a.among = make(map[string]bool, len(values))
		for _, v := range values {
			a.among[v] = true
		}
	}
	return a
}

// has reports whether a value is one of those that are wanted.
func (a *attrMatch) has(text string) bool {
	if a.among != nil {
		return a.among[text]
	}
	return slices.Contains(a.values, text)
}

// apiWeight is a name or pattern of APIs, and how much an event of them weighs.
type apiWeight struct {
	pattern string
	weight  int64
}

// former is a name that a limit's counters may have in a state, of a time when the rule had another
// number, tiers or refunds, and the window that they are of then.
type former struct {
	hash   SectionHash
	window windows.Spec
}

func (k *KeyShape) dims() []string {
	if k == nil {
		return nil
	}
	return k.Dims
}

func (k *KeyShape) hasAll(key []event.Dim) bool {
	return !slices.ContainsFunc(key, func(d event.Dim) bool { return !slices.Contains(k.Dims, d.Name) })
}

// covered returns which APIs a verdict on a key covers.
func (r *Rule) covered(key []event.Dim) []string {
	for _, d := range key {
		if d.Name == dimAPI {
			return []string{d.Value}
		}
	}
	return r.APIs
}

// fits reports whether dims are the shape's.
func (k *KeyShape) fits(dims []event.Dim) bool {
	return slices.EqualFunc(k.Dims, dims, func(name string, d event.Dim) bool { return name == d.Name })
}

// threshold returns the number that the limit's counts are compared with where no tier holds: a bucket's level with
// its burst.
func (l *Limit) threshold() event.Decimal {
	if l.Burst > 0 {
		return l.Burst
	}
	return l.Limit
}

// largest is the greatest number that the limit's counts are compared with.
func (l *Limit) largest() event.Decimal { return max(l.largestLive(), l.Candidate) }

// largestLive is the same without the candidate's.
func (l *Limit) largestLive() event.Decimal { return max(l.threshold(), l.KeyLimits.largest()) }

// ManualRule names the verdicts by command. No rule has that name.
const ManualRule = verdict.Manual

type (
	// Error is one mistake in a rule file.
	Error = document.Error
	// Errors is every mistake of one file, in the order of the file.
	Errors = document.Errors
	// Warning is something in a rule file that is allowed and probably not what was meant.
	Warning = document.Warning
)

// JudgedBy is a hash of all that a limit's counts are judged by. The zero value stands for several
// limits, one after the other: some keys were judged by one of them, some by another.
type JudgedBy [8]byte
