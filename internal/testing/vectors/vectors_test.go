// Package vectors makes the tables in testdata/vectors: what names, values, places and records are,
// for clients in other languages, whose tests read them. This test fails when they are out of date.
package vectors

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
	"github.com/tallygate/tallygate/pipeline/normalize"
)

// text is a value's bytes: JSON can't hold those that are no UTF-8, so they are in hexadecimal.
type text struct {
	In    string `json:"in,omitempty"`
	InHex string `json:"in_hex,omitempty"`
}

func textOf(s string) text {
	if utf8.ValidString(s) {
		return text{In: s}
	}
	return text{InHex: hex.EncodeToString([]byte(s))}
}

func TestNames(t *testing.T) {
	type row struct {
		Method string `json:"method"`
		Target string `json:"target"`
		Name   string `json:"name"`
	}
	var table []row
	for _, r := range [][2]string{
		{"GET", "/"}, {"GET", ""}, {"GET", "/search"}, {"HEAD", "/search"}, {"get", "/Search"}, {"", "/search"},
		{"GET", "/%73earch"}, {"GET", "/%53%45ARCH"}, {"GET", "/Images/a.gif?x=1"}, {"POST", "/orders/17/items"},
		{"POST", "/orders/"}, {"POST", "//orders"}, {"POST", "/./orders"}, {"POST", "/a/../orders"}, {"POST", "/../orders"},
		{"POST", "/a/b/c/../../../orders/x"}, {"GET", "/a/b/.."}, {"GET", "/a/b/c/d/../../e"}, {"GET", "/a%2Fb/c"}, {"GET", "/a%2f..%2fb"},
		{"GET", "/orders;v=1/17;x"}, {"GET", "/;x/orders"}, {"GET", "/orders%3Bv=1"}, {"GET", "/100%"}, {"GET", "/100%2"}, {"GET", "/%zz"}, {"GET", "/%2573earch"},
		{"GET", "/search#part"}, {"GET", "/search%23part"}, {"GET", "/search%3Fq"}, {"GET", "/a b"}, {"GET", "/a+b"}, {"GET", "/a_b-c~d"},
		{"GET", "/ünïcode/漢字"}, {"GET", "/%C3%BCn"}, {"GET", "/%ff%fe"}, {"GET", "/%00"}, {"GET", "http://example.com/search?q"}, {"GET", "https://example.com"},
		{"GET", "http://example.com:8080/a/b"}, {"OPTIONS", "*"}, {"CONNECT", "example.com:443"}, {"CONNECT", "/search"}, {"connect", "example.com:443"},
		{"GET", "search"}, {"GET", "search:x/y"}, {"GET", "a:/b"}, {"PURGE", "/x"}, {"M-SEARCH", "/x"}, {"GET", "/İstanbul"}, {"GET", "/\u212a"},
		{"GET", "/" + strings.Repeat("a", 200)}, {"GET", "/" + strings.Repeat("a", 120) + "/" + strings.Repeat("b", 20)}, {"GET", "/" + strings.Repeat("é", 100)},
		{"GET", "/a/" + strings.Repeat("../", 50) + "b"}, {"GET", "/..;/b"}, {"GET", "/.;x/b"},
	} {
		table = append(table, row{r[0], r[1], httplimit.PathAPI(r[0], r[1])})
	}
	compare(t, "names.json", table)
}

func TestTemplates(t *testing.T) {
	type row struct {
		Method   string `json:"method"`
		Template string `json:"template"`
		Name     string `json:"name"`
	}
	var table []row
	for _, r := range [][2]string{
		{"GET", "/"}, {"GET", "/orders"}, {"HEAD", "/orders/{id}"}, {"GET", "/orders/:id/items"}, {"get", "/Orders/{id}/items/{item}"},
		{"GET", "/orders/{id:[0-9]+}"}, {"GET", "/files/{path...}"}, {"GET", "/files/*"}, {"GET", "/files/*path"}, {"GET", "/orders/{id}/{$}"},
		{"GET", "/orders/:id?"}, {"GET", "/{id:int}/x"}, {"POST", "/v1.2/orders"}, {"GET", "/" + strings.Repeat("a/", 100)},
	} {
		table = append(table, row{r[0], r[1], httplimit.TemplateAPI(r[0], r[1])})
	}
	compare(t, "templates.json", table)
}

func TestCanonical(t *testing.T) {
	type row struct {
		Kind string `json:"kind"`
		text
		Out string `json:"out"`
	}
	var table []row
	add := func(kind string, of func(string) string, values ...string) {
		for _, v := range values {
			table = append(table, row{kind, textOf(v), of(v)})
		}
	}
	long := strings.Repeat("0123456789", 110)
	add("uid", event.CanonicalUID, "42", "u-17", "漢字", "", long[:255], long[:256], long[:257], strings.Repeat("é", 128), strings.Repeat("é", 129),
		"a\xffb", "\xed\xa0\x80", strings.Repeat("\xff", 85), strings.Repeat("\xff", 86))
	add("text", event.CanonicalText, "d1", "", long[:1024], long[:1025], long[:951]+"é"+long, strings.Repeat("é", 512), strings.Repeat("é", 513),
		strings.Repeat(`"`, 512), strings.Repeat(`"`, 513), strings.Repeat("\n", 170), strings.Repeat("\n", 171), "a\xff\xfeb", "a<b>&c\u2028\x7f")
	for _, v := range []string{"192.0.2.1", "::ffff:192.0.2.1", "2001:DB8:0:0::1", "2001:db8::1%eth0", "192.0.2.7:4711", "192.0.2.7:65536", "192.0.2.7:", "[2001:db8::1]", "[2001:DB8::1]:443", "[::ffff:192.0.2.7]:0", "[2001:db8::1%eth0]:1", "[2001:db8::1", "2001:db8::1]", "203.0.113.9, 10.0.0.1", "shop.example:443", "192.0.2.01", "192.0.2", "", "x", " 192.0.2.1", "1:2:3:4:5:6:7:8", "0:0:0:1::", "::"} {
		table = append(table, row{"ip", textOf(v), event.CanonicalDim("ip", v)})
	}
	compare(t, "canonical.json", table)
}

func TestPartitions(t *testing.T) {
	type row struct {
		Key        string `json:"key"`
		Partitions int32  `json:"partitions"`
		Partition  int32  `json:"partition"`
	}
	var table []row
	for _, n := range []int32{1, 3, 12, 100} {
		for _, key := range []string{"1", "42", "abc", "u-17", "01J8Z3K4M5", "somebody@example.com", "漢字", "ünïcode", "a rather longer name of somebody", "0", "7-", "65536"} {
			table = append(table, row{key, n, event.Partition([]byte(key), n)})
		}
	}
	compare(t, "partitions.json", table)
}

// An event as a client's emit takes it, and the record that it writes: its key ("" for none) and its
// value, whose fields may be in any order. A client that makes an id or a time itself does not when
// they are given.
func TestEvents(t *testing.T) {
	type row struct {
		Event json.RawMessage `json:"event"`
		Key   string          `json:"key"`
		Value json.RawMessage `json:"value"`
	}
	long := strings.Repeat("0123456789", 110)
	var table []row
	for _, given := range []string{
		`{"id": "e1", "time": "2026-11-21T10:00:00.123Z", "uid": "42", "api": "search.query", "outcome": "success", "cost": 1, "ip": "203.0.113.9", "attrs": {"device": "d1", "bytes": 2048, "discounted": true}}`,
		`{"id": "e2", "time": "2026-11-21T10:00:00Z", "api": "search.query", "ip": "::ffff:203.0.113.9"}`,
		`{"id": "e3", "time": "2026-11-21T10:00:00.000001Z", "uid": "42", "api": "order.create", "cost": 0.5, "attrs": {"price": 1.25, "empty": "", "flag": false}}`,
		`{"id": "e4", "time": "2026-11-21T10:00:00Z", "uid": "42", "api": "order.create", "cost": -1, "refunds": "e3"}`,
		`{"id": "e5", "time": "2026-11-21T10:00:00Z", "uid": "` + long[:300] + `", "api": "order.create", "attrs": {"note": "` + long + `"}}`,
		`{"id": "` + long[:200] + `", "time": "2026-11-21T10:00:00Z", "uid": "漢字", "api": "order.create", "outcome": "limited"}`,
		`{"id": "e7", "time": "2026-11-21T10:00:00Z", "uid": "42", "api": "order.create", "permit": "p1"}`,
	} {
		d := event.NewDecoder()
		events, err := d.Decode([]byte(given), nil, nil, nil)
		if err != nil || len(d.Bad) > 0 || len(events) != 1 {
			t.Fatalf("%s: %v, %v", given, err, d.Bad)
		}
		var small bytes.Buffer
		if err := json.Compact(&small, []byte(given)); err != nil {
			t.Fatal(err)
		}
		table = append(table, row{small.Bytes(), events[0].UID, event.AppendJSON(nil, &events[0])})
	}
	compare(t, "events.json", table)
}

func TestKeys(t *testing.T) {
	type row struct {
		In  string `json:"in"`
		Out string `json:"out"`
	}
	var table []row
	for _, s := range []string{
		"", " ", "SPRING10", " Spring 10 ", "\t\n\v\f\rx\r\n", "\u0085x\u00a0", "\u2007x\u202f", "\u3000x\u2003", "\ufeffx", "\u200bx", "\u180ex", "\x1fx\x1c",
		"JOS\u00c9@Example.com", "Jose\u0301@example.com", "\u00c5", "A\u030a", "\u212b", "\u212a", "\u0130", "I\u0307", "\u0131", "\u03a3", "\u039f\u03a3", "\u1f88", "\u01c5",
		"\u00df", "\u1e9e", "\ufb01", "\uff21", "\u1e9b\u0323", "\u0344", "\uac00", "\u1100\u1161", "\U00010400", "\U0001d15e", "\u6f22\u5b57", "q\u0323\u0307", "q\u0307\u0323", "+49 151 1234",
	} {
		table = append(table, row{s, normalize.Key(s)})
	}
	compare(t, "keys.json", table)
}

// compare writes the table, one row a line, or finds it as it is.
func compare[R any](t *testing.T, name string, table []R) {
	t.Helper()
	out := []byte("[\n")
	for i, row := range table {
		var line bytes.Buffer
		e := json.NewEncoder(&line)
		e.SetEscapeHTML(false)
		if err := e.Encode(row); err != nil {
			t.Fatal(err)
		}
		out = append(append(out, "  "...), bytes.TrimSpace(line.Bytes())...)
		if i < len(table)-1 {
			out = append(out, ',')
		}
		out = append(out, '\n')
	}
	out = append(out, "]\n"...)
	testrun.Golden(t, filepath.Join("../../../testdata/vectors", name), string(out))
}
