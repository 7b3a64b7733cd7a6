package event

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"
)

// All of these were "not-json: at byte 0: expected a value", or had no api.
func TestWhatIsSentInAnEventsPlaceIsNamed(t *testing.T) {
	const plainEvent = `{"uid":"42","api":"x"}`
	var gz, zl bytes.Buffer
	for _, w := range []interface {
		Write([]byte) (int, error)
		Close() error
	}{gzip.NewWriter(&gz), zlib.NewWriter(&zl)} {
		if _, err := w.Write([]byte(plainEvent)); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
	}
	units := utf16.Encode([]rune(plainEvent))
	little, big := make([]byte, 0, 2*len(units)), make([]byte, 0, 2*len(units))
	for _, u := range units {
		little, big = binary.LittleEndian.AppendUint16(little, u), binary.BigEndian.AppendUint16(big, u)
	}
	for about, c := range map[string]struct{ value, want string }{
		"a byte order mark":            {"\xef\xbb\xbf" + plainEvent, "byte order mark"},
		"gzip":                         {gz.String(), "compressed by gzip"},
		"zlib":                         {zl.String(), "compressed by zlib"},
		"zstd":                         {"\x28\xb5\x2f\xfd\x20\x00", "compressed by zstd"},
		"lz4":                          {"\x04\x22\x4d\x18\x64", "compressed by lz4"},
		"snappy":                       {"\x82SNAPPY\x00\x00\x00", "compressed by snappy"},
		"a registry's frame of JSON":   {"\x00\x00\x00\x00\x07" + plainEvent, "Schema Registry does (schema 7)"},
		"of Avro, with a large number": {"\x00\x00\x01\x86\xa0\x02\x04", "Schema Registry does (schema 100000)"},
		"UTF-16 with a mark":           {"\xff\xfe" + string(little), "UTF-16"},
		"the other order":              {"\xfe\xff" + string(big), "UTF-16"},
		"UTF-16 without a mark":        {string(little), "UTF-16"},
		"the other order without":      {string(big), "UTF-16"},
		"Connect":                      {`{"schema":{"type":"struct","fields":[]},"payload":` + plainEvent + `}`, "envelope of Kafka Connect"},
		"Connect without a schema":     {`{"payload":` + plainEvent + `,"schema":null}`, "envelope of Kafka Connect"},
		"Debezium":                     {`{"before":null,"after":` + plainEvent + `,"source":{"db":"shop"},"op":"c","ts_ms":1}`, "Debezium"},
		"Debezium by Connect":          {`{"schema":{},"payload":{"before":null,"after":{},"op":"c"}}`, "Kafka Connect"},
		"Connect, in an array":         {`[{"schema":{},"payload":{}}]`, "Kafka Connect"},
		"a log shipper's":              {`{"@timestamp":"2026-11-21T10:00:00Z","message":"{}","agent":{}}`, "in its message"},
		"a CloudEvent":                 {`{"specversion":"1.0","type":"a","source":"/s","id":"1"}`, "cloudevents+json"},
		"twice encoded":                {`"{\"uid\":\"42\",\"api\":\"x\"}"`, "encoded twice"},
		"Python":                       {`{'uid': '42', 'api': 'x'}`, "Python"},
		"MessagePack":                  {"\x82\xa3uid\xa2mp\xa3api\xa1x", "MessagePack"},
		"Java":                         {"\xac\xed\x00\x05t\x00", "Java"},
	} {
		var d Decoder
		events, err := d.Decode([]byte(c.value), nil, nil, nil)
		if len(events) != 0 || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d events, %v; want %q", about, len(events), err, c.want)
		}
		if strings.Contains(Recognize([]byte(c.value)), "42") {
			t.Errorf("%s: it cites the value", about)
		}
	}
	for _, other := range []string{"", " ", "{", "[]", "[", `{"uid":"1"}`, "hello", "192.0.2.1 - - [", "\x00", "\x00{", `{"payload":1}`, `"a"`, "xyz", "true"} {
		if what := Recognize([]byte(other)); what != "" {
			t.Errorf("%q is taken for: %s", other, what)
		}
	}
}

func FuzzRecognize(f *testing.F) {
	f.Add([]byte(`[{"schema":{},"payload":{}}]`))
	f.Add([]byte("\x00\x00\x00\x00\x01{}"))
	f.Fuzz(func(t *testing.T, value []byte) {
		before := bytes.Clone(value)
		if what := Recognize(value); len(what) > 300 || !bytes.Equal(before, value) {
			t.Errorf("%q: %s", before, what)
		}
	})
}
