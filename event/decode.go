package event

import (
	"errors"
	"fmt"
)

// Header is a header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Reasons why a record, or one event of it, is not an event: short and stable, they label
// metrics and dead letters.
const (
	ReasonNotJSON   = "not-json"   // the record is no JSON text
	ReasonNotObject = "not-object" // JSON, but neither an object nor an array of objects
	ReasonTooLarge  = "too-large"  // more than MaxBytes or MaxArrayBytes
	ReasonTooMany   = "too-many"   // more than MaxArray events in a record
	ReasonNoAPI     = "no-api"
	ReasonAPI       = "api"
	ReasonID        = "id"
	ReasonUID       = "uid"
	ReasonTime      = "time"
	ReasonOutcome   = "outcome"
	ReasonCost      = "cost"
	ReasonRefunds   = "refunds"
	ReasonAttrs     = "attrs"  // no object, more than MaxAttrs, or a number beyond all bounds
	ReasonNested    = "nested" // an attribute that is an object or an array
	ReasonPermit    = "permit" // permit is no string, or permit_at no time and no object of times
)

// WholeRecord is the Index of a BadEvent that is the whole record.
const WholeRecord = -1

// BadEvent is a record, or one element of a record that is an array, that is not an event.
type BadEvent struct {
	Index  int    // of the element; 0 when the record is one object; WholeRecord
	Reason string // one of the Reason constants
	Offset int    // the byte of the record where the trouble is
	Raw    []byte // the element, or the record, as it came: the record's own memory
	Err    error  // what is wrong, where, and what to do
}

// Error describes the mistake, its place, and the remedy.
func (b *BadEvent) Error() string {
	if b.Index == WholeRecord {
		return fmt.Sprintf("event: decode record: %v", b.Err)
	}
	return fmt.Sprintf("event: decode event %d of the record: %v", b.Index, b.Err)
}

// Unwrap returns Err.
func (b *BadEvent) Unwrap() error { return b.Err }

// Decoder turns records into events. The zero value is ready; it is for one goroutine.
//
// What it returns lives in two places: strings that JSON wrote without escapes are the record's own
// memory, all else (Attrs, other strings, Bad) is the Decoder's and holds until its next Decode. So
// the record must not change while its events are in use, and Clone makes an event that stays.
type Decoder struct {
	// Bad lists the mistakes of the last record, in its order.
	Bad []BadEvent

	// DroppedIPs counts, over all records, the events that lost an ip that does not parse.
	DroppedIPs uint64

	// Suspects counts, over all records, the events that look like a mistake. They are returned all the
	// same.
	Suspects Suspects

	// Unread is told the name of each field that is none of an event's, and that nothing reads; nil tells nobody. The
	// name holds until the next Decode.
	Unread func(name string)

	scan          scanner
	fields, attrs knownNames
	arena         []Attr     // the attributes of the record's events
	most          int        // attributes of a record, since Forget
	mark          int        // where those of the current event begin
	start         int        // where the current event begins
	mistakes                 // in the current event
	event         *Event     // the current event
	drop          bool       // its ip was dropped
	lately        bool       // it is written as instances of other versions may not read it
	other         otherName  // what fields that are not read may be meant for
	cloud         cloudEvent // the CloudEvents attributes around it
	mode          mode
	body          []byte
	spans         []span // where the last record's events are in body
}

type span struct{ from, to int }

// mode is the form of a record's events.
type mode uint8

const (
	plain      mode = iota
	inHeaders       // CloudEvents: attributes in headers, the value is their data
	structured      // CloudEvents: envelopes with data in them
	batch           // an array of such
)

// NewDecoder returns a Decoder; so does new.
func NewDecoder() *Decoder { return new(Decoder) }

// Decode appends the events of one record to dst: a JSON object, an array of them, or CloudEvents
// (binary by ce_ headers, structured and batched by their content-type).
//
// An element of an array that is not an event does not take the others with it: the good ones
// are returned, the bad ones are in Bad, and err joins these. A record that is not JSON at all,
// too large, or holds too many events is one BadEvent with Index WholeRecord, and gives no event.
// key is not read: who an event is about is in its value.
func (d *Decoder) Decode(value []byte, headers []Header, key []byte, dst []Event) ([]Event, error) {
	d.most = max(d.most, len(d.arena))
	d.arena, d.scan.buf = d.arena[:0], d.scan.buf[:0]
	return d.DecodeMore(value, headers, key, dst)
}

// DecodeMore is Decode, but for Bad: the events of earlier calls stay valid, until the next Decode.
// So the events of several records can be looked at together.
func (d *Decoder) DecodeMore(value []byte, headers []Header, key []byte, dst []Event) ([]Event, error) {
	_ = key
	d.Bad, d.body, d.spans = d.Bad[:0], value, d.spans[:0]
	d.mode = plain
	if len(headers) > 0 {
		d.readHeaders(headers)
	}
	kept, dropped, suspects := len(dst), d.DroppedIPs, d.Suspects
	dst = d.record(dst)
	if len(d.Bad) == 0 {
		return dst, nil
	}
	if d.Bad[len(d.Bad)-1].Index == WholeRecord {
		d.Bad = append(d.Bad[:0], d.Bad[len(d.Bad)-1])
		clear(dst[kept:])
		dst, d.DroppedIPs, d.Suspects = dst[:kept], dropped, suspects
	}
	errs := make([]error, len(d.Bad))
	for i := range d.Bad {
		bad := d.Bad[i] // a copy: an error outlives the next Decode
		errs[i] = &bad
	}
	return dst, errors.Join(errs...)
}

// Forget drops what the Decoder keeps of records. The events that it returned are in use no more.
func (d *Decoder) Forget() {
	clear(d.arena[:min(max(d.most, len(d.arena)), cap(d.arena))])
	clear(d.Bad[:cap(d.Bad)])
	clear(d.wrong[:cap(d.wrong)])
	d.scan.reset("")
	d.most, d.arena, d.Bad, d.wrong, d.event, d.cloud, d.body = 0, d.arena[:0], d.Bad[:0], d.wrong[:0], nil, cloudEvent{}, nil
}

// Raw returns the JSON of the i-th event that the last call decoded, as it came, in the record's
// own memory: decoded by itself it is the same event. It is nil for CloudEvents, of which only a
// part is the event, and for an id that is a number or a time in seconds, which older instances do not
// read so.
func (d *Decoder) Raw(i int) []byte {
	if d.mode != plain || d.spans[i].to == 0 {
		return nil
	}
	return d.body[d.spans[i].from:d.spans[i].to]
}

func (d *Decoder) record(dst []Event) []Event {
	p := &d.scan
	p.reset(sharedString(d.body))
	if len(d.body) > MaxArrayBytes {
		d.refuse(ReasonTooLarge, 0, fmt.Sprintf("the record has %d bytes, at most %d are read: send fewer events in one", len(d.body), MaxArrayBytes))
		return dst
	}
	first := p.peek()
	switch {
	case first == 0 && d.mode == inHeaders:
		return d.single(dst) // a CloudEvent without data
	case first == 0:
		d.refuse(ReasonNotJSON, p.i, "the record is empty")
		return dst
	case first == '[' && (d.mode == plain || d.mode == batch):
		dst = d.array(dst)
	case first == '{' && d.mode != batch:
		dst = d.single(dst)
	default:
		var t token
		if p.value(&t) {
			d.refuse(ReasonNotObject, t.at, "expected "+expected[d.mode])
			return dst
		}
	}
	if p.failure != "" {
		d.refuse(ReasonNotJSON, p.failedAt, p.failure)
	} else if p.peek() != 0 {
		d.refuse(ReasonNotJSON, p.i, "something follows the JSON text: send one object, or an array of them, a record")
	}
	return dst
}

var expected = [...]string{
	plain:      "an object or an array of objects",
	inHeaders:  "an object: the data of a binary CloudEvent",
	structured: "an object: a CloudEvent",
	batch:      "an array of CloudEvents",
}

func (d *Decoder) array(dst []Event) []Event {
	p := &d.scan
	more, ok := p.open(']')
	for index := 0; more && ok; index++ {
		if index == MaxArray {
			d.refuse(ReasonTooMany, p.i, fmt.Sprintf("more than %d events in one record: send fewer", MaxArray))
			p.failure, p.i = "", len(p.s)
			return dst
		}
		if dst, ok = d.element(dst, index); ok {
			more, ok = p.next(']')
		}
	}
	return dst
}

func (d *Decoder) single(dst []Event) []Event {
	dst, _ = d.element(dst, 0)
	return dst
}

// element reads the next value as one event. ok is false when it is no JSON.
func (d *Decoder) element(dst []Event, index int) (_ []Event, ok bool) {
	p := &d.scan
	c := p.peek()
	start := p.i
	dst = append(dst, Event{Time: NoTime, Cost: One, BrokerTime: NoTime, Permit: Permit{At: NoTime}})
	d.event, d.mark, d.start, d.drop, d.other = &dst[len(dst)-1], len(d.arena), start, false, 0
	d.lately = false
	if len(d.wrong) > 0 {
		d.wrong = d.wrong[:0]
	}
	switch {
	case c == '{' && d.mode < structured:
		ok = d.object()
	case c == '{':
		ok = d.envelope()
	case c == 0:
		ok = d.mode == inHeaders || p.fail(p.i, "the text ends where an event should be")
	default:
		var t token
		ok = p.value(&t)
		d.mistake(fieldNone, "", ReasonNotObject, start, "expected an object")
	}
	if !ok {
		return dst, false
	}
	d.finish(start)
	if len(d.wrong) > 0 {
		d.arena = d.arena[:d.mark]
		d.Bad = append(d.Bad, d.wrong[0].bad(index, d.body[start:p.i]))
		return dst[:len(dst)-1], true
	}
	if d.drop {
		d.DroppedIPs++
	}
	d.Suspects.look(d.event, d.other, d.drop)
	if d.lately {
		d.spans = append(d.spans, span{})
	} else {
		d.spans = append(d.spans, span{start, p.i})
	}
	return dst, true
}

// finish gives the current event, which began at start, its attributes and checks it as a whole.
func (d *Decoder) finish(start int) {
	e := d.event
	if d.mode != plain {
		d.setCloud(start)
	}
	if n := len(d.arena); n > d.mark {
		e.Attrs = d.arena[d.mark:n:n]
	}
	if e.Permit.ID == "" {
		e.Permit = Permit{}
	}
	if size := d.scan.i - start; size > MaxBytes {
		d.wrong = d.wrong[:0]
		d.mistake(fieldNone, "", ReasonTooLarge, start, fmt.Sprintf("the event has %d bytes, at most %d are read: shorten its attrs", size, MaxBytes))
	}
	if e.API == "" && !d.failed(fieldAPI) {
		why := "there is no api: name the action, such as order.create"
		if d.mode == plain {
			why = recognized(d.body[start:d.scan.i], why)
		}
		d.mistake(fieldAPI, "", ReasonNoAPI, start, why)
	}
	if e.Cost < 0 && e.Refunds == "" && !d.failed(fieldRefunds) {
		d.mistake(fieldCost, "", ReasonCost, start, "a negative cost needs refunds: name the event that it takes back")
	}
}

// refuse says that the whole record holds no events.
func (d *Decoder) refuse(reason string, at int, why string) {
	if reason == ReasonNotJSON || reason == ReasonNotObject {
		why = recognized(d.body, why)
	}
	m := mistake{reason: reason, at: at, why: why}
	d.Bad = append(d.Bad, m.bad(WholeRecord, d.body))
}

// recognized adds to a mistake what the value seems to be.
func recognized(value []byte, why string) string {
	if what := Recognize(value); what != "" {
		return why + "; " + what
	}
	return why
}
