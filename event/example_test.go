package event_test

import (
	"fmt"

	"github.com/tallygate/tallygate/event"
)

func ExampleDecoder() {
	var d event.Decoder
	record := []byte(`[{"uid": 42, "api": "order.create", "cost": 2.5}, {"uid": 42.0, "api": "login"}]`)
	events, err := d.Decode(record, nil, nil, nil)
	for _, e := range events {
		fmt.Println(e.UID, e.API, e.Cost)
	}
	for _, bad := range d.Bad {
		fmt.Println(bad.Index, bad.Reason, string(bad.Raw))
	}
	fmt.Println(err)
	// Output:
	// 42 order.create 2.5
	// 1 uid {"uid": 42.0, "api": "login"}
	// event: decode event 1 of the record: uid: at byte 58: a number with a fraction or an exponent is no uid: write an integer or a string
}

func ExampleDecoder_cloudEvents() {
	var d event.Decoder
	headers := []event.Header{
		{Key: "ce_specversion", Value: []byte("1.0")},
		{Key: "ce_id", Value: []byte("A234")},
		{Key: "ce_source", Value: []byte("/shop")},
		{Key: "ce_type", Value: []byte("order.create")},
		{Key: "ce_subject", Value: []byte("42")},
	}
	events, err := d.Decode([]byte(`{"outcome": "success"}`), headers, nil, nil)
	fmt.Println(events[0].ID, events[0].UID, events[0].API, events[0].Outcome, err)
	// Output: /shop/A234 42 order.create success <nil>
}

func ExampleAppendJSON() {
	at, _ := event.ParseMicros("2026-11-21T18:00:00.5+08:00")
	e := event.Event{
		UID: "42", API: "order.create", Time: at, Cost: event.One, BrokerTime: event.NoTime,
		Attrs: []event.Attr{{Name: "discounted", Value: event.BoolValue(true)}},
	}
	if err := e.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(event.AppendJSON(nil, &e)))
	// Output: {"time":"2026-11-21T10:00:00.5Z","uid":"42","api":"order.create","attrs":{"discounted":true}}
}

func ExampleParseKey() {
	dims, err := event.ParseKey([]byte("attrs.campaign=c%201&uid=42"))
	fmt.Println(dims, err)
	fmt.Println(event.FormatKey([]event.Dim{{Name: "uid", Value: "42"}, {Name: "attrs.campaign", Value: "c 1"}}))
	// Output:
	// [{attrs.campaign c 1} {uid 42}] <nil>
	// attrs.campaign=c%201&uid=42
}

func ExampleParseDecimal() {
	d, err := event.ParseDecimal("1.50")
	fmt.Println(d, d.TimesInt(3), err)
	// Output: 1.5 4.5 <nil>
}
