package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var fuzzHeaders = map[string]string{"specversion": "1.0", "id": "7", "source": "/shop", "type": "order.create", "subject": "u1"}

// FuzzDecode holds the Decoder against the reference decoder, in every mode, and what it decoded
// against its own encoding.
func FuzzDecode(f *testing.F) {
	for _, seed := range decodeSeeds() {
		for m := range uint8(4) {
			f.Add([]byte(seed), m)
		}
	}
	d := NewDecoder()
	f.Fuzz(func(t *testing.T, value []byte, m uint8) {
		md := mode(m % 4)
		var headers []Header
		switch md {
		case inHeaders:
			for k, v := range fuzzHeaders {
				headers = append(headers, Header{"ce_" + k, []byte(v)})
			}
		case structured:
			headers = []Header{{"content-type", []byte("application/cloudevents+json; charset=utf-8")}}
		case batch:
			headers = []Header{{"Content-Type", []byte("application/cloudevents-batch+json")}}
		}
		before := bytes.Clone(value)
		got, err := d.Decode(value, headers, nil, nil)
		if !bytes.Equal(before, value) {
			t.Fatal("Decode changed the record")
		}
		want := refDecode(value, md, fuzzHeaders)
		if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want.events); g != w {
			t.Fatalf("mode %d\n got %.2000s\nwant %.2000s\nerr %v", md, g, w, err)
		}
		var bad []int
		for _, b := range d.Bad {
			bad = append(bad, b.Index)
			if b.Reason == "" || b.Offset < 0 || b.Offset > len(value) {
				t.Fatalf("a bad event says nothing useful: %+v", b)
			}
		}
		if !slices.Equal(bad, want.bad) || (err == nil) != (len(bad) == 0) {
			t.Fatalf("mode %d: bad %v, want %v (%v)", md, bad, want.bad, err)
		}
		for i := range got {
			roundTrip(t, &got[i])
			if raw := d.Raw(i); raw == nil != (md != plain || d.spans[i].to == 0) {
				t.Fatalf("mode %d: raw %.80q", md, raw)
			} else if raw != nil {
				again, err := NewDecoder().Decode(raw, nil, nil, nil)
				if g, w := fmt.Sprintf("%+v", again), fmt.Sprintf("%+v", got[i:i+1]); g != w {
					t.Fatalf("%.2000s by itself\n got %.2000s\nwant %.2000s\nerr %v", raw, g, w, err)
				}
			}
		}
		inTime(t, d, value, headers)
	})
}

// Decoding takes time in proportion to the bytes: at most so much a byte. On an idle machine it is
// some 20 ns for the worst that is known; what is quadratic takes microseconds.
const (
	decodeBudget     = time.Microsecond
	decodeBudgetOnce = 2 * time.Millisecond // for what does not depend on the size
)

// inTime fails when the fastest of some attempts is over the budget: one may have had to wait for
// the processor.
func inTime(t *testing.T, d *Decoder, value []byte, headers []Header) {
	t.Helper()
	budget := decodeBudgetOnce + time.Duration(len(value))*decodeBudget
	var took time.Duration
	for range 20 {
		began := time.Now()
		_, _ = d.Decode(value, headers, nil, nil)
		if took = time.Since(began); took <= budget {
			return
		}
	}
	t.Fatalf("decoding %d bytes takes %v, more than %v: %.200q", len(value), took, budget, value)
}

// What a record holds decides nothing about how long it takes: it is decoded under its partition's
// lock.
func TestDecodingTakesTimeInProportion(t *testing.T) {
	const size = 405 << 10
	fill := func(head, tail string, item func(i int) string) string {
		var b strings.Builder
		b.WriteString(head)
		for i := 0; b.Len() < size; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(item(i))
		}
		return b.String() + tail
	}
	attrs := func(value string) func(int) string {
		return func(i int) string { return fmt.Sprintf(`"a%d":%s`, i, value) }
	}
	event := func(i int) string {
		return fill(`{"api":"a","attrs":{`, `}}`, attrs("[]"))[:60<<10] + fmt.Sprintf(`":1,"b%d":0}}`, i)
	}
	for name, text := range map[string]string{
		"bad attributes":                   fill(`{"api":"a","attrs":{`, `}}`, attrs("[]")),
		"numbers beyond all bounds":        fill(`{"api":"a","attrs":{`, `}}`, attrs("1e9999999999")),
		"bad attributes, then null":        fill(`{"api":"a","attrs":{`, `}}`, func(i int) string { return fmt.Sprintf(`"a%d":%s`, i/2, []string{"[]", "null"}[i%2]) }),
		"more attributes than allowed":     fill(`{"api":"a","attrs":{`, `}}`, attrs("1")),
		"attrs again and again":            fill(`{"api":"a",`, `}`, func(int) string { return `"attrs":{"a":[],"b":{},"c":[]}` }),
		"a bad field again and again":      fill(`{"api":"a",`, `}`, func(int) string { return `"cost":"x","time":true,"uid":[]` }),
		"bad attributes in a CloudEvent":   fill(`{"specversion":"1.0","type":"a","data":{"attrs":{`, `}}}`, attrs("[]")),
		"many events of bad attributes":    fill(`[`, `]`, event),
		"one attribute of escapes":         `{"api":"a","attrs":{"a":"` + strings.Repeat(`\n`, size/2) + `"}}`,
		"one number of many digits":        `{"api":"a","attrs":{"a":` + strings.Repeat("1", size) + `}}`,
		"a nested attribute of many parts": fill(`{"api":"a","attrs":{"a":[`, `]}}`, func(int) string { return "{}" }),
	} {
		t.Run(name, func(t *testing.T) {
			for _, headers := range [][]Header{nil, {{"content-type", []byte("application/cloudevents+json")}}} {
				inTime(t, NewDecoder(), []byte(text), headers)
			}
		})
	}
}

func roundTrip(t *testing.T, e *Event) {
	t.Helper()
	text := AppendJSON(nil, e)
	if !json.Valid(text) {
		t.Fatalf("not JSON: %s", text)
	}
	if len(text) > MaxBytes {
		t.Fatalf("what was decoded has %d bytes of JSON: %.200s", len(text), text)
	}
	if !e.IsCanonical() {
		t.Fatalf("what was decoded is not canonical: %.2000s", text)
	}
	if err := e.Validate(); err != nil {
		t.Fatalf("what was decoded is not valid: %v\n%s", err, text)
	}
	again, err := NewDecoder().Decode(text, nil, nil, nil)
	if err != nil {
		t.Fatalf("decode %s: %v", text, err)
	}
	if g, w := fmt.Sprintf("%+v", again[0]), fmt.Sprintf("%+v", *e); g != w {
		t.Fatalf("through %s\n got %s\nwant %s", text, g, w)
	}
}

// decodeSeeds are the inputs of testdata/decode.txt, and some that no text file holds well.
func decodeSeeds() []string {
	var seeds []string
	for _, c := range readCases("testdata/decode.txt") {
		seeds = append(seeds, c.input)
	}
	return append(seeds,
		"", " \n", "\x00", "{", "[", `"`, "nul", "{}{}", "\ufeff{}",
		"{\"api\":\"a\xff\xfeb\",\"uid\":\"\xc3\"}",
		`{"api":"a","x":`+strings.Repeat("[", maxDepth-1)+strings.Repeat("]", maxDepth-1)+"}",
		`{"api":"a","x":`+strings.Repeat("[", maxDepth)+strings.Repeat("]", maxDepth)+"}",
		`[`+strings.Repeat(`{"api":"a"},`, MaxArray-1)+`{"api":"a"}]`,
		`[`+strings.Repeat(`{"api":"a"},`, MaxArray)+`{"api":"a"}]`,
		`{"api":"a","uid":"`+strings.Repeat("u", MaxUID)+`"}`,
		`{"api":"a","uid":"`+strings.Repeat("u", MaxUID+1)+`"}`,
		`{"api":"a","uid":`+strings.Repeat("1", MaxUID+1)+`}`,
		`{"api":"`+strings.Repeat("a", MaxAPI)+`","id":"`+strings.Repeat("i", MaxID)+`","refunds":"`+strings.Repeat("i", MaxID)+`"}`,
		`{"api":"`+strings.Repeat("a", MaxAPI+1)+`"}`,
		`{"api":"a","id":"`+strings.Repeat("i", MaxID+1)+`"}`,
		`{"api":"a","refunds":"`+strings.Repeat("i", MaxID+1)+`"}`,
		`[{"api":"a","outcome":"`+strings.Repeat("x", MaxBytes)+`"},{"api":"b"}]`,
		`{"api":"a","attrs":{`+manyAttrs(MaxAttrs)+`}}`,
		`{"api":"a","attrs":{`+manyAttrs(MaxAttrs+1)+`}}`,
		`{"api":"a","attrs":{`+manyAttrs(MaxAttrs)+`,"gone":null,"a0":"again"}}`,
	)
}

func manyAttrs(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"a%d":%d`, i, i)
	}
	return b.String()
}

// FuzzKey: a key's text and its dimensions say the same.
func FuzzKey(f *testing.F) {
	for _, seed := range []string{"uid=42", "attrs.campaign=c%201&uid=42", "ip/64=2001%3Adb8%3A%3A%2F64", "uid=%", "uid=%zz", "=x", "uid=", "a=1&a=2", "uid=%00%7C"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		dims, err := ParseKey(text)
		if err != nil {
			return
		}
		again, err := ParseKey(AppendKey(nil, dims))
		slices.SortFunc(dims, byName)
		if err != nil || !slices.Equal(dims, again) {
			t.Fatalf("%q: %v became %v (%v)", text, dims, again, err)
		}
	})
}

// FuzzDecimal: the text of a decimal is exact, and the only one.
func FuzzDecimal(f *testing.F) {
	for _, seed := range []string{"1", "0.5", "-1048576", "1e3", "9223372036854.775807", "9223372036854.775808", "0.0000001", "-0", "1e-6", "00", "1.", ".5", "1e"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDecimal(text)
		var want Decimal
		ok := json.Valid([]byte(text)) && strings.Trim(text, "+-.eE0123456789") == ""
		if ok {
			want, ok = refCost(json.RawMessage(text))
		}
		if (err == nil) != ok || (ok && d != want) || (err != nil && !errors.Is(err, ErrDecimal)) {
			t.Fatalf("ParseDecimal(%q) = %v, %v; want %v, %v", text, d, err, want, ok)
		}
		if again, err := ParseDecimal(d.String()); err != nil || again != d {
			t.Fatalf("%q: %v became %v (%v)", text, d, again, err)
		}
	})
}
