package shard

import (
	"strings"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/rules"
)

// What a tally tells apart by names that producers choose: their number is bounded.
const maxNoticed = 100

// maxClient is how many bytes of a producer's name are kept: a header may be as long as a record.
const maxClient = 256

// Unmatched is what events that no rule counts say.
type Unmatched struct {
	API, Outcome string
	NoUID        bool // they name no user, so that rules by uid pass them over
}

// OtherUnmatched stands for all that have no room.
var OtherUnmatched = Unmatched{API: rules.OtherNames}

// noteUnmatched tallies an event that no rule counts.
func (t *Tally) noteUnmatched(e *event.Event) {
	t.Unmatched++
	is := Unmatched{e.API, e.Outcome, e.UID == ""}
	n := t.UnmatchedBy[is]
	if n == nil && len(t.UnmatchedBy) >= maxNoticed {
		is = OtherUnmatched
		n = t.UnmatchedBy[is]
	}
	if n == nil {
		n = new(uint64)
		t.UnmatchedBy[Unmatched{strings.Clone(is.API), strings.Clone(is.Outcome), is.NoUID}] = n
	}
	*n++
}

// Misplaced is events that were sent to another partition than that of their uid, so that they are forwarded.
type Misplaced struct {
	Events uint64
	Offset int64 // of the last one's record
}

// misplaces reports whether works of an event belong to another partition because of its uid. Where keys have
// no uid, producers can do nothing about it.
func (in *intake) misplaces(works []rules.Work) bool {
	for i := range works {
		if works[i].Shape.HasUID && in.log.cfg.owner(&works[i]) != in.log.cfg.ID {
			return true
		}
	}
	return false
}

// noteMisplaced tallies a record by its producer's name.
func (t *Tally) noteMisplaced(rec *record.Record) {
	client := ClientOf(rec.Headers)
	m, known := t.Misplaced[client]
	if !known && len(t.Misplaced) >= maxNoticed {
		client = rules.OtherNames
		m = t.Misplaced[client]
	}
	t.Misplaced[client] = Misplaced{m.Events + 1, rec.Offset}
}

// ClientOf is what a record says about its producer: its own header, else the source of a CloudEvent; "" for
// nothing. Kafka itself tells consumers nothing about producers.
func ClientOf(headers record.Headers) (name string) {
	for {
		key, value, ok := headers.Next()
		if !ok {
			return name
		}
		switch {
		case string(key) == event.HeaderClient:
			return string(value[:min(len(value), maxClient)])
		case strings.EqualFold(string(key), "ce_source"):
			name = string(value[:min(len(value), maxClient)])
		}
	}
}
