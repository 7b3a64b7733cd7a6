package protocol

import (
	"slices"

	"github.com/tallygate/tallygate/event"
)

// Kind selects how an amount stops to count under a limit.
type Kind uint8

// The kinds of limits.
const (
	Window   Kind = iota // at a moment that follows from the amount's time
	Bucket               // by and by, at a rate
	InFlight             // when its permit ends
)

// Limit is a strict limit, as far as admission needs it.
type Limit struct {
	Name    string       // of its counters: another window, key or count has another one
	Formers []string     // names of a time when it had another number, tiers or refunds: permits of these are its own
	Kind    Kind         //
	Hold    event.Micros // how long an action may take, until its event is in Kafka
	Returns bool         // a permit whose action never told how it ended is returned, not counted

	// Of a Window: an amount at t counts until floor((t - Offset) / Grain) * Grain + Offset + Keeps, or,
	// where there are Ends, until the first of them behind t.
	Grain, Offset, Keeps event.Micros
	Ends                 []event.Micros

	// Of a Window that begins with an event, how long it is; 0 of others. Until its event is counted nobody knows
	// which window an amount is in, so that it Keeps longer: what is told of ends goes by Lasts.
	Lasts event.Micros

	// Of a Bucket: Rate drains in Per.
	Rate event.Decimal
	Per  event.Micros
}

// until returns when an amount at a time no longer counts; false where Ends do not reach that far.
func (l *Limit) until(at event.Micros) (event.Micros, bool) {
	if l.Kind != Window {
		return 0, true
	}
	if len(l.Ends) == 0 {
		n := (at - l.Offset) / l.Grain
		if (at-l.Offset)%l.Grain < 0 {
			n--
		}
		return n*l.Grain + l.Offset + l.Keeps, true
	}
	for _, end := range l.Ends {
		if end > at {
			return end, true
		}
	}
	return 0, false
}

// is tells whether what a permit holds under a name is of the limit.
func (l *Limit) is(name string) bool {
	return name == l.Name || !off.formers && slices.Contains(l.Formers, name)
}

// ends returns the moment from which a part of a permit no longer counts: by the window that its event will count in.
func (l *Limit) ends(p *Permit, part *Part) event.Micros {
	if part.Name == l.Name || l.Kind != Window || len(l.Ends) > 0 {
		return part.Until
	}
	until, _ := l.until(p.At)
	return until
}

// Want is a request's amount under one limit.
type Want struct {
	Limit
	Amount event.Decimal // more than 0

	// Threshold is the number to compare with: the limit of the request's tier, of a bucket its burst. It is negative
	// when the tier is not known. Then that of the key's last tier holds, and where no event has been counted, or by
	// a tier that is gone, the Lowest.
	Threshold event.Decimal
	Lowest    event.Decimal
	Tiers     []Tier // when the tier is not known: all there are
}

// Tier is another threshold of a limit, for some keys.
type Tier struct {
	ID        uint64 // 0: for those of no tier
	Threshold event.Decimal
}

// drained returns a bucket's drain in a time, rounded down by as much as binary floating point may be wrong: a bucket
// never seems emptier than it is.
func drained(by event.Micros, rate event.Decimal, per event.Micros) float64 {
	x := float64(by) / float64(per) * float64(rate)
	return max(0, floor(x-x*roundingShare-0.5))
}

// roundingShare bounds the error of two operations on doubles, relatively: 2^-52 each, and twice that
// to be sure.
const roundingShare = 1.0 / (1 << 50)
