// Package deadletter has the JSON form of a dead letter, and decides which of its events are sent
// again after a fix. The tool and the aggregators share this code.
package deadletter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
)

// Limits of one request. The tool keeps to them, and an aggregator refuses more.
const (
	MaxBytes   = 16 << 20 // a letter's JSON: a record of 2 MiB, each of its bytes written as \u0000
	MaxLetters = 1000     // in a request
	MaxPlaces  = 100      // topics' partitions that their records were in: the audit names each
)

// Place is where a record was; after a crash its dead letter may be there twice.
type Place struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// Known reports whether the place is known.
func (p Place) Known() bool { return p.Topic != "" }

// maxTopic is how long Kafka lets a topic's name be.
const maxTopic = 249

func (p Place) check() error {
	if !p.Known() {
		return nil
	}
	odd := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
	}
	if len(p.Topic) > maxTopic || strings.ContainsFunc(p.Topic, odd) {
		return fmt.Errorf("topic %.260q: not a valid name of a topic", p.Topic)
	}
	if p.Partition < 0 || p.Offset < 0 {
		return fmt.Errorf("partition %d, offset %d: no record can be there", p.Partition, p.Offset)
	}
	return nil
}

// eventID names one event of a record for good, so that it counts once however often the letter is
// sent.
func (p Place) eventID(index int) string {
	return fmt.Sprintf("%s/%d@%d#%d", p.Topic, p.Partition, p.Offset, index)
}

// Letter is a dead letter as `tallygate dead-letters --json` writes it, and as it is read when it
// is to be sent.
type Letter struct {
	At     event.Micros `json:"at"`
	Reason string       `json:"reason"`
	Detail string       `json:"detail"`
	Place
	Index   []int   `json:"index,omitempty"`
	CutFrom int     `json:"cut_from,omitempty"` // 0: the value is whole
	Value   *string `json:"value,omitempty"`
	Value64 []byte  `json:"value_base64,omitempty"` // when it is no UTF-8

	Headers    []Header `json:"headers,omitempty"`     // the record's own
	HeadersCut int      `json:"headers_cut,omitempty"` // how many of them are missing
}

// Header is a header that the record had.
type Header struct {
	Key     string  `json:"key"`
	Value   *string `json:"value,omitempty"`
	Value64 []byte  `json:"value_base64,omitempty"` // when it is no UTF-8
}

// Parse reads a letter's JSON. A field that no letter has is a mistake: without its index, say, all
// of an array would be sent, with the elements that have counted.
func Parse(text []byte) (Letter, error) {
	var l Letter
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&l)
	if err == nil {
		if _, end := d.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("there is more after it")
		}
	}
	if err != nil {
		return Letter{}, fmt.Errorf("no object as --json writes it: %w", err)
	}
	return l, nil
}

// Events returns the letter's events to send, or an error. Of an array these are the malformed
// elements, because the others have counted. An event without an id gets one from the record's
// place and its index. So it counts once, even if the letter is sent again after a lost answer.
// With now, the events have no time of their own; the ids are the same. An event that was too late
// then counts, and an event that has counted is a repeat.
//
// The events are good until d is used again.
func (l *Letter) Events(d *event.Decoder, now bool) ([]event.Event, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	value, err := l.value()
	if err != nil {
		return nil, err
	}
	headers, err := l.headers()
	if err != nil {
		return nil, err
	}
	events, err := d.Decode(value, headers, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("still malformed: %w", err)
	}
	for i := range events {
		e := &events[i]
		if e.ID == "" && l.Known() {
			e.ID = l.eventID(i)
		}
		if now {
			e.Time = event.NoTime
		}
		e.Canonicalize()
		if err := e.Validate(); err != nil {
			return nil, fmt.Errorf("event %d cannot be sent: %w", i, err)
		}
	}
	return l.wanted(value, events)
}

func (l *Letter) value() ([]byte, error) {
	switch {
	case l.CutFrom != 0:
		return nil, fmt.Errorf("the value was cut from %d bytes: put the whole one there, and take cut_from out", l.CutFrom)
	case l.Value != nil && l.Value64 != nil:
		return nil, errors.New("value and value_base64: which of them?")
	case l.Value != nil:
		return []byte(*l.Value), nil
	case l.Value64 != nil:
		return l.Value64, nil
	}
	return nil, errors.New("it has no value")
}

// headers are those that a CloudEvent is read by.
func (l *Letter) headers() ([]event.Header, error) {
	if l.HeadersCut != 0 {
		return nil, fmt.Errorf("%d headers of the record missing: put those of a CloudEvent there, and take headers_cut out", l.HeadersCut)
	}
	headers := make([]event.Header, 0, len(l.Headers))
	for _, h := range l.Headers {
		value := h.Value64
		if h.Value != nil {
			value = []byte(*h.Value)
		}
		headers = append(headers, event.Header{Key: h.Key, Value: value})
	}
	return headers, nil
}

// wanted are the events that index names; without it, and where the whole record was bad, all.
func (l *Letter) wanted(value []byte, events []event.Event) ([]event.Event, error) {
	array := bytes.HasPrefix(bytes.TrimLeft(value, " \t\r\n"), []byte("["))
	if !array || len(l.Index) == 0 || slices.Contains(l.Index, event.WholeRecord) {
		return events, nil
	}
	named := make([]bool, len(events))
	wanted := make([]event.Event, 0, min(len(l.Index), len(events)))
	for _, i := range l.Index {
		if i < 0 || i >= len(events) {
			return nil, fmt.Errorf("index names element %d of an array that has %d: leave the others in their places, or take index out to send all", i, len(events))
		}
		if named[i] {
			return nil, fmt.Errorf("index names element %d twice: it would be sent twice", i)
		}
		named[i] = true
		wanted = append(wanted, events[i])
	}
	return wanted, nil
}
