package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

const example = `{"id":"01J8Z3K4M5","time":"2026-11-21T10:00:00.123Z","uid":"42","api":"search.query","outcome":"success","attrs":{"device":"d1","bytes":2048}}`

func decodeOne(t testing.TB, text string) Event {
	t.Helper()
	events, err := NewDecoder().Decode([]byte(text), nil, nil, nil)
	if err != nil || len(events) != 1 {
		t.Fatalf("%s: %d events, %v", text, len(events), err)
	}
	return events[0]
}

// A common event costs no memory: nothing, whatever its number of attributes.
func TestDecodeAllocatesNothing(t *testing.T) {
	value := []byte(`[` + example + `,{"api":"a","uid":7,"ip":"2001:db8::1","cost":2.5,"attrs":{"x":1.50,"y":"é\n","z":true}}]`)
	headers := []Header{{"tg-i", []byte("instance")}, {"content-type", []byte("application/json")}}
	d := NewDecoder()
	var dst []Event
	var err error
	if n := testrun.Allocs(100, func() {
		dst, err = d.Decode(value, headers, nil, dst[:0])
	}); n != 0 || err != nil || len(dst) != 2 {
		t.Errorf("%v allocations, %d events, %v", n, len(dst), err)
	}
	var text []byte
	if n := testrun.Allocs(100, func() {
		text = AppendJSON(text[:0], &dst[0])
		text = AppendJSON(text, &dst[1])
	}); n != 0 {
		t.Errorf("AppendJSON: %v allocations", n)
	}
}

func BenchmarkDecode(b *testing.B) {
	value := []byte(example) // 141 bytes
	d := NewDecoder()
	var dst []Event
	var err error
	b.SetBytes(int64(len(value)))
	b.ReportAllocs()
	for b.Loop() {
		if dst, err = d.Decode(value, nil, nil, dst[:0]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	e := decodeOne(b, example)
	var text []byte
	b.ReportAllocs()
	for b.Loop() {
		text = AppendJSON(text[:0], &e)
	}
}

// Decode appends: what was in dst stays, and a record that fails leaves nothing of itself.
func TestDecodeAppends(t *testing.T) {
	d := NewDecoder()
	dst, err := d.Decode([]byte(`{"api":"a"}`), nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	kept := dst[0].Clone()
	dst, err = d.Decode([]byte(`[{"api":"b","ip":"x"},{"api":`), nil, nil, []Event{kept})
	if err == nil || len(dst) != 1 || dst[0].API != "a" {
		t.Errorf("%+v, %v", dst, err)
	}
	if d.DroppedIPs != 0 {
		t.Error("an ip was counted of a record that holds no events")
	}
	dst, err = d.Decode([]byte(`[{"api":"b"},{}]`), nil, nil, dst)
	if len(dst) != 2 || dst[1].API != "b" {
		t.Errorf("%+v", dst)
	}
	// The error tells apart what is bad, and holds beyond the next Decode.
	var bad *BadEvent
	if !errors.As(err, &bad) || bad.Index != 1 || bad.Reason != ReasonNoAPI || string(bad.Raw) != "{}" {
		t.Errorf("%+v", bad)
	}
	if _, err := d.Decode([]byte(`x`), nil, nil, nil); err == nil || bad.Index != 1 {
		t.Errorf("%v; the earlier error became %+v", err, bad)
	}
	if len(d.Bad) != 1 || d.Bad[0].Index != WholeRecord || d.Bad[0].Reason != ReasonNotJSON || string(d.Bad[0].Raw) != "x" {
		t.Errorf("%+v", d.Bad)
	}
}

func TestCloneSharesNothing(t *testing.T) {
	value := []byte(`{"id":"i","uid":"u","api":"a","outcome":"o","refunds":"r","ip":"::1","attrs":{"n":"\u0061","m":1}}`)
	d := NewDecoder()
	events, err := d.Decode(value, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	clone := events[0].Clone()
	want := string(AppendJSON(nil, &events[0]))
	for i := range value {
		value[i] = 'x'
	}
	_, _ = d.Decode([]byte(`{"api":"\u0062","attrs":{"other":"\u0063"}}`), nil, nil, nil)
	if got := string(AppendJSON(nil, &clone)); got != want {
		t.Errorf(" got %s\nwant %s", got, want)
	}
	if e := (&Event{}).Clone(); e.Attrs != nil {
		t.Error("Clone made attributes")
	}
}

func TestSizes(t *testing.T) {
	fill := func(n int) string {
		const head, tail = `{"api":"a","outcome":"`, `"}`
		return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
	}
	many := func(n int) string { return "[" + strings.Repeat(`{"api":"a"},`, n-1) + `{"api":"a"}]` }
	big := "[" + strings.Repeat(fill(MaxBytes)+",", 15) + fill(MaxBytes-17) + "]"
	for _, c := range []struct {
		name, text, reason string
		events             int
	}{
		{"the largest event", fill(MaxBytes), "", 1},
		{"one byte more", fill(MaxBytes + 1), ReasonTooLarge, 0},
		{"white space around it does not count", " " + fill(MaxBytes) + " ", "", 1},
		{"one in an array", "[" + fill(MaxBytes+1) + `,{"api":"a"}]`, ReasonTooLarge, 1},
		{"the most events", many(MaxArray), "", MaxArray},
		{"one more", many(MaxArray + 1), ReasonTooMany, 0},
		{"the largest record", big, "", 16},
		{"one byte more", big + " ", ReasonTooLarge, 0},
	} {
		d := NewDecoder()
		events, err := d.Decode([]byte(c.text), nil, nil, nil)
		reason := ""
		if len(d.Bad) > 0 {
			reason = d.Bad[0].Reason
		}
		if len(events) != c.events || reason != c.reason || (err == nil) != (reason == "") {
			t.Errorf("%s (%d bytes): %d events, reason %q", c.name, len(c.text), len(events), reason)
		}
	}
}

func TestValidate(t *testing.T) {
	good := func() Event {
		return Event{API: "a", UID: "u", Time: NoTime, BrokerTime: NoTime, Cost: One,
			Attrs: []Attr{{"s", StringValue("x")}, {"n", NumberValue(One / 4)}, {"b", BoolValue(true)}, {"f", BoolValue(false)}}}
	}
	e := good()
	if err := e.Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Event){
		"no api":          func(e *Event) { e.API = "" },
		"long api":        func(e *Event) { e.API = strings.Repeat("a", MaxAPI+1) },
		"api of U+FFFD":   func(e *Event) { e.API = strings.Repeat("\xff", MaxAPI/3+1) },
		"control in api":  func(e *Event) { e.API = "a\nb" },
		"long uid":        func(e *Event) { e.UID = strings.Repeat("a", MaxUID+1) },
		"long id":         func(e *Event) { e.ID = strings.Repeat("a", MaxID+1) },
		"long refunds":    func(e *Event) { e.Refunds = strings.Repeat("a", MaxID+1) },
		"negative cost":   func(e *Event) { e.Cost = -1 },
		"cost below all":  func(e *Event) { e.Cost, e.Refunds = math.MinInt64, "i" },
		"mapped ip":       func(e *Event) { e.IP = netip.MustParseAddr("::ffff:1.2.3.4") },
		"ip with zone":    func(e *Event) { e.IP = netip.MustParseAddr("fe80::1%eth0") },
		"far time":        func(e *Event) { e.Time = MaxTime + 1 },
		"far broker time": func(e *Event) { e.BrokerTime = MinTime - 1 },
		"attr twice":      func(e *Event) { e.Attrs = append(e.Attrs, Attr{"s", StringValue("y")}) },
		"many attrs":      func(e *Event) { e.Attrs = make([]Attr, MaxAttrs+1) },
		"number 1.0":      func(e *Event) { e.Attrs[0].Value = Value{Number, "1.0"} },
		"number x":        func(e *Event) { e.Attrs[0].Value = Value{Number, "x"} },
		"boolean yes":     func(e *Event) { e.Attrs[0].Value = Value{Bool, "yes"} },
		"unknown kind":    func(e *Event) { e.Attrs[0].Value = Value{9, "yes"} },
		"long outcome":    func(e *Event) { e.Outcome = strings.Repeat("x", MaxText+1) },
		"long attr":       func(e *Event) { e.Attrs[0].Value = StringValue(strings.Repeat("\n", MaxText/6+1)) },
		"long attr name":  func(e *Event) { e.Attrs[0].Name = strings.Repeat("x", maxAttrName+1) },
	} {
		e := good()
		spoil(&e)
		if e.Validate() == nil {
			t.Errorf("%s: valid", name)
		}
		if text := AppendJSON(nil, &e); !json.Valid(text) {
			t.Errorf("%s: not JSON: %s", name, text)
		}
	}
}

func TestDim(t *testing.T) {
	e := decodeOne(t, `{"api":"a","uid":42,"ip":"2001:DB8::1:2","attrs":{"n":42.0,"t":true,"s":"x"}}`)
	four := decodeOne(t, `{"api":"a","ip":"::ffff:203.0.113.9"}`)
	for _, c := range []struct {
		event      *Event
		name, want string
	}{
		{&e, "uid", "42"}, {&e, "ip", "2001:db8::1:2"}, {&e, "ip/64", "2001:db8::/64"},
		{&e, "attrs.n", "42"}, {&e, "attrs.t", "true"}, {&e, "attrs.s", "x"},
		{&e, "attrs.none", ""}, {&e, "api", "a"}, {&e, "all", "true"}, {&e, "", ""}, {&e, "ip/24", "2001:db8::/64"}, {&e, "ip/16/128", "2001:db8::1:2"},
		{&four, "uid", ""}, {&four, "ip", "203.0.113.9"}, {&four, "ip/64", "203.0.113.9"}, {&four, "ip/16", "203.0.0.0/16"}, {&four, "ip/32", ""},
		{&Event{}, "ip", ""}, {&Event{}, "ip/64", ""},
	} {
		if got, ok := c.event.Dim(c.name); got != c.want || ok != (c.want != "") {
			t.Errorf("Dim(%q) = %q, %v; want %q", c.name, got, ok, c.want)
		}
	}
}

func TestValueDecimal(t *testing.T) {
	for text, want := range map[string]Decimal{
		"2048": 2048 * One, "-0.0000019": -1, "1e-30": 0, "0.1234567": 123456,
		"1e60": MaxDecimal, "-1e60": -MaxDecimal, "9223372036854.775807": MaxDecimal,
	} {
		if got, ok := (Value{Number, text}).Decimal(); got != want || !ok {
			t.Errorf("%s became %v, %v; want %v", text, got, ok, want)
		}
	}
	for _, v := range []Value{StringValue("1"), BoolValue(true), {Number, "x"}} {
		if got, ok := v.Decimal(); ok {
			t.Errorf("%+v became %v", v, got)
		}
	}
}

func TestDecimalText(t *testing.T) {
	for text, d := range map[string]Decimal{
		"0": 0, "1": One, "0.5": One / 2, "1048576": 1048576 * One, "-0.000001": -1, "-12.34": -12_340_000,
		"9223372036854.775807": MaxDecimal, "-9223372036854.775807": -MaxDecimal,
	} {
		if got := d.String(); got != text {
			t.Errorf("%d is %s, want %s", int64(d), got, text)
		}
		var back Decimal
		if err := json.Unmarshal([]byte(text), &back); err != nil || back != d {
			t.Errorf("%s became %v, %v", text, back, err)
		}
	}
	d := One
	if err := json.Unmarshal([]byte("null"), &d); err != nil || d != One {
		t.Errorf("null: %v, %v", d, err)
	}
	if err := json.Unmarshal([]byte(`"1"`), &d); !errors.Is(err, ErrDecimal) {
		t.Errorf("a string: %v", err)
	}
}

func TestMicrosText(t *testing.T) {
	for text, m := range map[string]Micros{
		"1970-01-01T00:00:00Z": 0, "1970-01-01T00:00:01.5Z": Second + Second/2, "1969-12-31T23:59:59.999999Z": -1,
		"2026-11-21T10:00:00.123Z": 1795255200123000, "0000-01-01T00:00:00Z": MinTime, "9999-12-31T23:59:59.999999Z": MaxTime,
	} {
		if got := m.String(); got != text {
			t.Errorf("%d is %s, want %s", int64(m), got, text)
		}
		text, err := json.Marshal(m)
		var back Micros
		if err2 := json.Unmarshal(text, &back); errors.Join(err, err2) != nil || back != m {
			t.Errorf("%s became %v, %v, %v", text, back, err, err2)
		}
	}
	if (MaxTime+Day).String() != MaxTime.String() || (NoTime+1).String() != MinTime.String() || NoTime.String() != "" {
		t.Error("what RFC 3339 cannot write")
	}
	for _, text := range []string{"null", `"tomorrow"`, "7"} {
		m := Micros(7)
		if err := json.Unmarshal([]byte(text), &m); (err == nil) != (text == "null") || (err == nil) != (m == NoTime) {
			t.Errorf("%s became %v, %v", text, m, err)
		}
	}
}

// Every eleventh day of RFC 3339's years is where time.Time has it.
func TestDays(t *testing.T) {
	for m := MinTime; m <= MaxTime; m += 11 * Day {
		at := m.Time()
		if got := daysSinceEpoch(at.Year(), int(at.Month()), at.Day()); Micros(got)*Day != m {
			t.Fatalf("%v: %d days", at, got)
		}
	}
}

// The vectors of Kafka's own UtilsTest.
func TestMurmur2(t *testing.T) {
	for key, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	} {
		if got := int32(Murmur2([]byte(key))); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", key, got, want)
		}
		if p := Partition([]byte(key), 12); p != (want&0x7fffffff)%12 {
			t.Errorf("partition of %q: %d", key, p)
		}
	}
}

func TestKeyText(t *testing.T) {
	dims := []Dim{{"uid", "a|b&c=d é\x00"}, {"ip/64", "2001:db8::/64"}, {"attrs.a-b", "1"}}
	const want = "attrs.a-b=1&ip/64=2001%3Adb8%3A%3A%2F64&uid=a%7Cb%26c%3Dd%20%C3%A9%00"
	if got := FormatKey(dims); got != want || dims[0].Name != "uid" {
		t.Errorf("got %s, and left %v", got, dims)
	}
	built := AppendDim(AppendDim(AppendDim(nil, "attrs.a-b", "1"), "ip/64", "2001:db8::/64"), "uid", dims[0].Value)
	if !bytes.Equal(built, []byte(want)) {
		t.Errorf("AppendDim built %s", built)
	}
	if back, err := ParseKey(built); err != nil || FormatKey(back) != want {
		t.Errorf("%v, %v", back, err)
	}
	for _, text := range []string{"", "uid", "uid=", "=1", "uid=1&", "uid=%2", "uid=%g0", "uid=1&uid=2"} {
		if dims, err := ParseKey([]byte(text)); err == nil {
			t.Errorf("%q became %v", text, dims)
		}
	}
}

// Events of several records are in use at once: what needs memory of the Decoder's must not
// be written over by the next record.
func TestDecodeMoreKeepsEarlierEvents(t *testing.T) {
	var d Decoder
	var kept []Event
	decode := d.Decode
	for i := range 100 {
		value := fmt.Appendf(nil, `{"api":"a\u002e%d","uid":"u\n%d","attrs":{"n":%d.50,"s":"\t%d"}}`, i, i, i, i)
		events, err := decode(value, nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		kept, decode = append(kept, events...), d.DecodeMore
		if i%10 == 9 {
			if events, err := d.DecodeMore([]byte(`[{"api":7,"attrs":{"x":"\n"}}]`), nil, nil, nil); err == nil || len(events) > 0 {
				t.Fatalf("%v, %v", events, err)
			}
		}
	}
	for i, e := range kept {
		got := fmt.Sprintf("%s %s %s %s", e.API, e.UID, e.Attrs[0].Value.Text, e.Attrs[1].Value.Text)
		if want := fmt.Sprintf("a.%d u\n%d %d.5 \t%d", i, i, i, i); got != want {
			t.Errorf("event %d is %q, want %q", i, got, want)
		}
	}
}
