package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
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
		}
	})
}

func roundTrip(t *testing.T, e *Event) {
	t.Helper()
	text := AppendJSON(nil, e)
	if !json.Valid(text) {
		t.Fatalf("not JSON: %s", text)
	}
	if len(text) > MaxBytes {
		return // replaced bytes are longer than what they replace
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
