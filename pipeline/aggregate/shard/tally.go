package shard

import (
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/rules"
)

// Tally counts what became of events since its owner last looked.
type Tally struct {
	Counted, Unmatched, Repeat, Late, TooOld, NoTime, UnknownRefund, Told, Replayed, ProducerRepeat uint64

	Over       uint64         // blocks that were over before they could be published
	Overtaken  uint64         // moved ends that gave way before they were published
	DroppedIPs uint64         // events that count without their ip, which does not parse
	Suspects   event.Suspects // events that count, and look like a mistake
	Lost       uint64         // records that were deleted before they were counted
	Matches    []uint64       // by limit

	Overshoot []Overshoot // by limit
	Near      []uint64    // by limit: events that left a key near it

	Mismatches  map[rules.Mismatch]uint64 // events that contradict the vocabulary
	UnmatchedBy map[Unmatched]*uint64     // Unmatched, by what they say; to assign to a map would keep an event's memory as the key
	Misplaced   map[string]Misplaced      // by the producer's name, "" where it has none

	Unpermitted                 []uint64 // events that counted under strict rules without a permit, by rule
	PermitsAhead, PermitsTooOld uint64   // events whose permits, or some of them, were ignored for their times
}

// count makes room for a set's limits, and forgets what was counted under others.
func (t *Tally) count(set *rules.Set) {
	t.Matches, t.Overshoot = make([]uint64, len(set.Limits)), make([]Overshoot, len(set.Limits))
	t.Near = make([]uint64, len(set.Limits))
	t.Unpermitted = make([]uint64, len(set.Rules))
}

func (t *Tally) stepped(w *rules.Work, res *rules.Result) {
	if res.Repeat {
		t.Repeat++
		return
	}
	if res.Unknown {
		t.UnknownRefund++
		return
	}
	if res.Tells {
		t.Told++
		return
	}
	t.Late += uint64(res.Late)
	t.Counted++
	for i := range w.Hits {
		if !w.Hits[i].Tells {
			t.Matches[w.Hits[i].Limit.Index]++
		}
	}
}

// What a tally tells apart by names that producers choose: their number is bounded.
const maxNoticed = 100

// maxClient bounds the bytes of a producer's name that are kept: a header may be as long as a record.
const maxClient = 256

// Unmatched counts events that no rule counts, by their fields.
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

// ClientOf names a record's producer: by its own header, else the source of a CloudEvent; "" for nothing. Kafka
// itself tells consumers nothing about producers.
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

// OvershootBounds are the greatest delays of Overshoot.Delays, but of the last, which has no
// bound.
var OvershootBounds = [...]event.Micros{
	event.Millisecond, 2500, 5 * event.Millisecond, 10 * event.Millisecond, 25 * event.Millisecond, 50 * event.Millisecond,
	100 * event.Millisecond, 250 * event.Millisecond, 500 * event.Millisecond,
	event.Second, 2500 * event.Millisecond, 5 * event.Second, 10 * event.Second, event.Minute,
}

// Overshoot counts the events above one limit since its owner last looked.
type Overshoot struct {
	Events uint64 // that verdicts were to keep out
	Shadow uint64 // that nothing was to keep out, since the limit is in shadow mode

	// Delays counts events by the time from the beginning of the verdict in force, by the events' own time: by
	// bucket, and altogether. Only of Events, and of these only where there was a verdict.
	Delays [len(OvershootBounds) + 1]uint64
	Delay  event.Micros
}

// Empty reports whether there was none.
func (o *Overshoot) Empty() bool { return o.Events == 0 && o.Shadow == 0 }

// Add adds what another one has.
func (o *Overshoot) Add(other *Overshoot) {
	o.Events += other.Events
	o.Shadow += other.Shadow
	o.Delay += other.Delay
	for i, n := range other.Delays {
		o.Delays[i] += n
	}
}

func (o *Overshoot) note(a *rules.Above) {
	if a.Shadow {
		o.Shadow++
		return
	}
	o.Events++
	if a.Since == event.NoTime {
		return
	}
	i, _ := slices.BinarySearch(OvershootBounds[:], a.Since)
	o.Delays[i]++
	o.Delay += a.Since
}
