package event

import (
	"bytes"
	"errors"
)

// MarshalJSON returns the event's wire form, as AppendJSON does. A BrokerTime of 0, as in a literal that
// does not set it, is left out.
func (e Event) MarshalJSON() ([]byte, error) {
	if e.BrokerTime == 0 {
		e.BrokerTime = NoTime
	}
	return AppendJSON(nil, &e), nil
}

// UnmarshalJSON reads one event's wire form, with broker_time if it has one. It shares no memory with
// data. null changes nothing.
func (e *Event) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	d := NewDecoder()
	events, err := d.Decode(bytes.Clone(data), nil, nil, nil)
	switch {
	case len(d.Bad) > 0:
		return &d.Bad[0]
	case err != nil:
		return err
	case len(events) != 1:
		return errors.New("event: not exactly one event")
	}
	*e = events[0]
	return nil
}
