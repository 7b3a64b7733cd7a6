package event

import (
	"strings"
	"testing"
)

// What the rule language says of events as they arrive. A want that is empty is no event.
func TestSentences(t *testing.T) {
	cloud := func(id, source string) []Header {
		return []Header{{"ce_specversion", []byte("1.0")}, {"ce_id", []byte(id)}, {"ce_source", []byte(source)}, {"ce_type", []byte("a.b")}}
	}
	long := strings.Repeat("s", 200)
	hashed := decoded(t, `{}`, cloud("1", long))
	if id := hashed.ID; len(id) > 128 || id == decoded(t, `{}`, cloud("2", long)).ID || id != decoded(t, `{}`, cloud("1", long)).ID {
		t.Errorf("an id that is too long is %q", id)
	}
	for _, tt := range []struct {
		sentence, record string
		headers          []Header
		want             string
	}{
		{"A CloudEvents id is source/id", `{}`, cloud("7", "/shop"), `{"id":"/shop/7","api":"a.b"}`},
		{"A CloudEvents id is hashed when too long", `{}`, cloud("1", long), `{"id":"` + hashed.ID + `","api":"a.b"}`},
		{`Values are compared as text: 42 is "42", 1.0 is "1", true is "true"`, `{"api":"x","attrs":{"a":42,"b":1.0,"c":true}}`, nil,
			`{"api":"x","attrs":{"a":42,"b":1,"c":true}}`},
		{"An empty value is an absent one", `{"api":"x","uid":"","attrs":{"a":""}}`, nil, `{"api":"x"}`},
		{"::ffff:a.b.c.d is the IPv4 address", `{"api":"x","ip":"::ffff:192.0.2.1"}`, nil, `{"api":"x","ip":"192.0.2.1"}`},
		{"Times are whole microseconds, further digits are cut", `{"api":"x","time":"2026-11-21T10:00:00.1234569Z"}`, nil,
			`{"time":"2026-11-21T10:00:00.123456Z","api":"x"}`},
		{"A negative cost without a name is not an event", `{"api":"x","cost":-1}`, nil, ""},
		{"An event with a negative cost names one in refunds", `{"api":"x","cost":-1,"refunds":"e1"}`, nil, `{"api":"x","cost":-1,"refunds":"e1"}`},
	} {
		t.Run(strings.ReplaceAll(tt.sentence, "/", "⁄"), func(t *testing.T) {
			d := NewDecoder()
			events, _ := d.Decode([]byte(tt.record), tt.headers, nil, nil)
			got := ""
			if len(events) == 1 {
				got = string(AppendJSON(nil, &events[0]))
			}
			if got != tt.want {
				t.Errorf("%s is\n%s, want\n%s", tt.record, got, tt.want)
			}
		})
	}
}

func decoded(t *testing.T, record string, headers []Header) Event {
	t.Helper()
	events, err := NewDecoder().Decode([]byte(record), headers, nil, nil)
	if err != nil || len(events) != 1 {
		t.Fatalf("%s: %v", record, err)
	}
	return events[0].Clone()
}
