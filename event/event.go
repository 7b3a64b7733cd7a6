// Package event is one action that a user took, and its forms on the wire.
//
// It links nothing but the standard library: applications carry it with emit and enforce.
package event

import "net/netip"

// Event is one action that happened. Strings may share memory with the record they were
// decoded from: whoever keeps one beyond the record's life clones it.
type Event struct {
	ID      string     // what makes the event itself; "" when absent
	UID     string     // who; "" for anonymous actions
	API     string     // required, dotted: order.create
	Outcome string     // "" when absent
	Refunds string     // the id of the event that a negative cost takes back
	IP      netip.Addr // invalid when absent or dropped; never an IPv4-mapped IPv6 address, no zone
	Time    Micros     // NoTime when absent: the record's broker time then counts
	Cost    Decimal    // One when absent; negative only with Refunds
	Attrs   []Attr     // at most MaxAttrs, as they came, names distinct (the last of equal names wins)
	Permit  Permit     // what admitted the action under strict limits; the zero value for none

	// Trace is the context of the request that did it, if that is traced. It is no part of the event's JSON:
	// an emitter sends it in the record's header HeaderTrace. The zero value for none.
	Trace Trace

	// BrokerTime is the time at which the broker appended the record. In records it is set by whoever consumes them;
	// in files to replay it is a field. NoTime when absent.
	BrokerTime Micros
}

// Attr is one named attribute.
type Attr struct {
	Name  string
	Value Value
}

// Kind tells what an attribute's value was in JSON.
type Kind uint8

// The kinds of attribute values.
const (
	String Kind = iota
	Number
	Bool
)

// Value is an attribute's value. Text is what keys and matches compare: the string itself,
// "true" or "false", or the number in its shortest form (42 and 42.0 are both "42").
type Value struct {
	Kind Kind
	Text string
}

// Limits on what an event may hold.
const (
	MaxBytes      = 64 << 10 // one event's JSON
	MaxArrayBytes = 1 << 20  // one record that holds several events
	MaxArray      = 1000     // events in one record
	MaxAPI        = 128
	MaxUID        = 256  // bytes; a longer one is hashed: CanonicalUID
	MaxID         = 128  // bytes; a longer one is hashed
	MaxText       = 1024 // bytes of an attribute's value, and of the outcome, in JSON; a longer one is cut: CanonicalText
	MaxAttrs      = 32

	// maxAttrName is MaxText for an attribute's name. With these bounds the JSON of an event whose
	// texts are canonical never exceeds MaxBytes.
	maxAttrName = 256
)

// Attr returns the value of the attribute called name. An empty string is an absent attribute.
func (e *Event) Attr(name string) (Value, bool) {
	for i := range e.Attrs {
		if e.Attrs[i].Name == name {
			return e.Attrs[i].Value, e.Attrs[i].Value.Text != ""
		}
	}
	return Value{}, false
}
