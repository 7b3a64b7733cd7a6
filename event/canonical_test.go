package event

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// strangeText draws texts as callers may have them: long ones, ones with escapes, and bytes that
// are no UTF-8.
var strangeText = rapid.Custom(func(t *rapid.T) string {
	part := rapid.SampledFrom([]string{"a", "漢", "é", "\xff", "\xed\xa0\x80", "\xc3", "\n", `"`, `\`, "\x00", "~sha256-", "\uFFFD", "😀"})
	s := strings.Join(rapid.SliceOfN(part, 0, 12).Draw(t, "parts"), "")
	return strings.Repeat(s, rapid.SampledFrom([]int{1, 1, 2, 20, 100, 300, 6000}).Draw(t, "times"))
})

// Whatever a caller passes, the event that arrives has the value that a check and a command look for: decoded from its JSON,
// whether emit or someone else wrote it, and made canonical by itself.
func TestOneCanonicalForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		uid, text := strangeText.Draw(t, "uid"), strangeText.Draw(t, "value")
		raw := Event{API: "a", Time: NoTime, BrokerTime: NoTime, Cost: One, UID: uid, ID: text, Refunds: uid, Outcome: text}
		if text != "" {
			raw.Attrs = []Attr{{"v", StringValue(text)}}
		}
		sent := raw
		sent.Canonicalize()
		if err := sent.Validate(); err != nil || !sent.IsCanonical() {
			t.Fatalf("Canonicalize left %v", err)
		}
		once := fmt.Sprintf("%q", sent)
		if sent.Canonicalize(); fmt.Sprintf("%q", sent) != once {
			t.Fatal("canonical twice is not canonical once")
		}
		if len(raw.Attrs) > 0 && raw.Attrs[0].Value.Text != text {
			t.Fatal("Canonicalize changed the caller's attributes")
		}
		wires := [][]byte{AppendJSON(nil, &sent)}
		if long := AppendJSON(nil, &raw); len(long) <= MaxBytes {
			wires = append(wires, long)
		}
		for _, wire := range wires {
			e, err := NewDecoder().Decode(wire, nil, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if g := fmt.Sprintf("%q", e[0]); g != once {
				t.Fatalf("\n got %.3000s\nwant %.3000s", g, once)
			}
		}
		for name, value := range map[string][2]string{"uid": {uid, sent.UID}, "attrs.v": {text, sent.Outcome}} {
			if got := CanonicalDim(name, value[0]); got != value[1] {
				t.Fatalf("%s: a check has %.200q, events %.200q", name, got, value[1])
			}
			if d, err := NewDim(name, value[0]); value[0] != "" && (err != nil || d.Value != value[1]) {
				t.Fatalf("%s: a command has %.200q (%v), events %.200q", name, d.Value, err, value[1])
			}
		}
	})
}

func TestCanonicalForms(t *testing.T) {
	hash := func(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }
	device := strings.Repeat("d", 70<<10)
	chars := strings.Repeat("漢", 1000)
	long := strings.Repeat("u", MaxUID+1)
	for _, c := range []struct{ name, dim, value, want string }{
		{"clean", "uid", "42", "42"},
		{"invalid UTF-8", "uid", "a\xffb\xc3", "a\uFFFDb\uFFFD"},
		{"half a surrogate pair", "uid", "\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD"},
		{"the longest uid", "uid", long[1:], long[1:]},
		{"a longer one", "uid", long, "sha256-" + hash(long)},
		{"one that grows beyond", "uid", strings.Repeat("\xff", 100), "sha256-" + hash(strings.Repeat("\uFFFD", 100))},
		{"the longest attribute", "attrs.a", device[:MaxText], device[:MaxText]},
		{"a longer one", "attrs.a", device, device[:MaxText-72] + "~sha256-" + hash(device)},
		{"cut between characters", "attrs.a", chars, chars[:(MaxText-72)/3*3] + "~sha256-" + hash(chars)},
		{"escapes count as they are written", "attrs.a", strings.Repeat("\n", 171), strings.Repeat("\n", (MaxText-72)/6) + "~sha256-" + hash(strings.Repeat("\n", 171))},
		{"ip", "ip", "::FFFF:192.0.2.1", "192.0.2.1"},
		{"ip/64", "ip/64", "2001:DB8::7:1", "2001:db8::/64"},
		{"no address", "ip", "nowhere", ""},
	} {
		got := CanonicalDim(c.dim, c.value)
		if got != c.want {
			t.Errorf("%s: %.200q, want %.200q", c.name, got, c.want)
		}
		if !utf8.ValidString(got) || len(got) > MaxText {
			t.Errorf("%s: %d bytes: %.200q", c.name, len(got), got)
		}
	}
}

// One value that is too long discards nothing.
func TestOversizedValuesKeepTheEvent(t *testing.T) {
	long := strings.Repeat("x", 3000)
	e := decodeOne(t, `{"api":"a","uid":"`+long+`","id":"`+long+`","outcome":"`+long+`","attrs":{"device":"`+long+`","n":`+strings.Repeat("1", 3000)+`.5,"`+long+`":1}}`)
	if e.UID != CanonicalUID(long) || e.ID != canonicalID(long) || e.Outcome != CanonicalText(long) || len(e.Attrs) != 3 {
		t.Errorf("%+v", e)
	}
	if v, _ := e.Attr("device"); v.Text != CanonicalText(long) {
		t.Errorf("device is %q", v.Text)
	}
	if v, _ := e.Attr("n"); v.Kind != String || len(v.Text) != MaxText {
		t.Errorf("n is %+v", v)
	}
}

// The largest event that has canonical texts fits, whatever its characters: what one program may send, another may pass on.
func TestCanonicalEventsFit(t *testing.T) {
	wide := strings.Repeat("\x01", 1000)
	e := Event{API: strings.Repeat(`"`, MaxAPI), UID: wide[:MaxUID], ID: wide[:MaxID], Refunds: wide[:MaxID], Outcome: wide, Cost: -MaxDecimal, Time: MaxTime, BrokerTime: MinTime}
	for i := range MaxAttrs {
		e.Attrs = append(e.Attrs, Attr{fmt.Sprint(i) + wide, StringValue(wide)})
	}
	e.Canonicalize()
	text := AppendJSON(nil, &e)
	if err := e.Validate(); err != nil || len(text) > MaxBytes {
		t.Errorf("%d bytes: %v", len(text), err)
	}
	if _, err := NewDecoder().Decode(text, nil, nil, nil); err != nil {
		t.Error(err)
	}
}

func TestCleanValuesCostNoAllocation(t *testing.T) {
	uid, text := strings.Repeat("u", 36), strings.Repeat("é", 200)
	e := Event{API: "a", UID: uid, Outcome: "success", Attrs: []Attr{{"a", StringValue(text)}}}
	if n := testrun.Allocs(100, func() {
		if CanonicalDim("uid", uid) != uid || CanonicalDim("attrs.a", text) != text || !e.IsCanonical() {
			t.Fatal("changed")
		}
		e.Canonicalize()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Raw keeps each valid event's bytes as they came.
func TestRaw(t *testing.T) {
	d := NewDecoder()
	record := []byte(` [ {"api":"a","x": "` + "\xff" + `"}, 17, {"api":"b"} , {"uid":1},{"api":"c"}]`)
	events, _ := d.Decode(record, nil, nil, nil)
	var got [][]byte
	for i := range events {
		got = append(got, d.Raw(i))
	}
	if want := "{\"api\":\"a\",\"x\": \"\xff\"}|{\"api\":\"b\"}|{\"api\":\"c\"}"; string(bytes.Join(got, []byte("|"))) != want {
		t.Errorf("%q", got)
	}
	if _, err := d.Decode([]byte(`{}`), []Header{{"ce_id", []byte("1")}, {"ce_type", []byte("a")}}, nil, nil); err != nil || d.Raw(0) != nil {
		t.Errorf("a CloudEvent: %v, %q", err, d.Raw(0))
	}
}
