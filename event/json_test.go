package event

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// encoding/json writes and reads events in their wire form, also within other values.
func TestEncodingJSON(t *testing.T) {
	e := Event{ID: "a", UID: "42", API: "order.create", Time: 1795255200123000, Cost: One / 2, BrokerTime: NoTime,
		Attrs: []Attr{{"plan", StringValue("pro")}}}
	text, err := json.Marshal(map[string]any{"event": e, "at": &e})
	want := `{"id":"a","time":"2026-11-21T10:00:00.123Z","uid":"42","api":"order.create","cost":0.5,"attrs":{"plan":"pro"}}`
	if err != nil || string(text) != `{"at":`+want+`,"event":`+want+`}` {
		t.Errorf("%s, %v", text, err)
	}
	var back struct{ Event, At Event }
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back.Event, e) || !reflect.DeepEqual(back.At, e) {
		t.Errorf("%+v", back)
	}
	e.BrokerTime = 0
	if text, _ := json.Marshal(e); string(text) != want {
		t.Errorf("a broker time that nobody set: %s", text)
	}
	kept := e
	for bad, told := range map[string]string{
		`{"api":""}`: "api", `{"uid":"42"}`: "api", `[]`: "exactly one", `[{"api":"a"},{"api":"b"}]`: "exactly one", `7`: "", `{"api":"a","cost":"x"}`: "cost",
	} {
		if err := json.Unmarshal([]byte(bad), &e); err == nil || !strings.Contains(err.Error(), told) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := json.Unmarshal([]byte("null"), &e); err != nil || !reflect.DeepEqual(e, kept) {
		t.Errorf("null: %+v, %v", e, err)
	}
}

// What comes out of adding binary numbers counts as what was meant; other long fractions are mistakes.
func TestCostsThatAreSumsOfBinaryNumbers(t *testing.T) {
	for text, want := range map[string]Decimal{
		"0.30000000000000004": 300_000, "0.7999999999999999": 800_000, "1.1102230246251565": -1, "3.3000000000000003": 3_300_000,
		"0.0000015": -1, "0.1234567": -1, "5.551115123125783e-17": -1, "0.9999999999": One, "100000000.30000001192": -1,
		"1e-7": -1, "1e-10": -1, "2.0000000000000004e0": 2 * One,
	} {
		events, _ := NewDecoder().Decode([]byte(`{"api":"a","cost":`+text+`}`), nil, nil, nil)
		switch {
		case len(events) == 0 && want >= 0, len(events) == 1 && events[0].Cost != want:
			t.Errorf("%s: %v, want %v", text, events, want)
		}
	}
}
