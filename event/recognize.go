package event

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Recognize names what producers and converters send in an event's place, and says what to do: a compressed
// value, a frame of a Schema Registry, an envelope of Kafka Connect. "" is for what it does not know. It cites
// nothing of the value but a schema's number.
func Recognize(value []byte) string {
	for _, known := range magics {
		if bytes.HasPrefix(value, []byte(known.magic)) {
			return known.what
		}
	}
	if len(value) >= 4 {
		switch zero := [4]bool{value[0] == 0, value[1] == 0, value[2] == 0, value[3] == 0}; {
		case zero == [4]bool{true, false, true, false}, zero == [4]bool{false, true, false, true}:
			return isUTF16
		}
	}
	if len(value) > frame && value[0] == 0 {
		return fmt.Sprintf("it begins as a frame of a Schema Registry does (schema %d): send JSON without one, by a serializer of plain JSON or strings",
			binary.BigEndian.Uint32(value[1:frame]))
	}
	text := bytes.TrimLeft(value, " \t\r\n")
	switch {
	case len(text) == 0:
		return ""
	case text[0] == '{' || text[0] == '[':
		return envelope(text)
	case text[0] == '"' && bytes.Contains(text[:min(len(text), 64)], []byte(`{\"`)):
		return "it is JSON within a JSON string: it was encoded twice"
	case text[0] == '<':
		return "it looks like XML or HTML: send JSON"
	case text[0] >= 0x80 && text[0] <= 0x8f || text[0] == 0xde || text[0] == 0xdf:
		return "it looks like MessagePack: send JSON"
	}
	return ""
}

const (
	frame   = 5 // bytes before what a Schema Registry's serializer writes
	isUTF16 = "it looks like UTF-16: send UTF-8"
)

// magics are the first bytes of formats, the longer ones first.
var magics = []struct{ magic, what string }{
	{"\x82SNAPPY\x00", "it is compressed by snappy: let Kafka's producer compress whole batches (compression.type), and send the value as it is"},
	{"Obj\x01", "it is an Avro file: send JSON"},
	{"\x28\xb5\x2f\xfd", "it is compressed by zstd: let Kafka's producer compress whole batches (compression.type), and send the value as it is"},
	{"\x04\x22\x4d\x18", "it is compressed by lz4: let Kafka's producer compress whole batches (compression.type), and send the value as it is"},
	{"PK\x03\x04", "it is a ZIP file: send JSON"},
	{"\xac\xed\x00\x05", "it is an object that Java has serialized: send JSON"},
	{"\xff\xfe\x00\x00", "it looks like UTF-32: send UTF-8"},
	{"\x00\x00\xfe\xff", "it looks like UTF-32: send UTF-8"},
	{"\xef\xbb\xbf", "it begins with a byte order mark: send UTF-8 without one"},
	{"\xff\xfe", isUTF16},
	{"\xfe\xff", isUTF16},
	{"\x1f\x8b", "it is compressed by gzip: let Kafka's producer compress whole batches (compression.type), and send the value as it is"},
	{"\x78\x01", "it is compressed by zlib: send the value as it is"},
	{"\x78\x9c", "it is compressed by zlib: send the value as it is"},
	{"\x78\xda", "it is compressed by zlib: send the value as it is"},
	{"{'", "it is written as Python prints a dict: send JSON, such as json.dumps makes it"},
	{"[{'", "it is written as Python prints a list: send JSON, such as json.dumps makes it"},
}

// envelope names what is around an event, by the names of its object's own fields.
func envelope(text []byte) string {
	var p scanner
	p.reset(sharedString(text))
	if p.peek() == '[' {
		if more, ok := p.open(']'); !more || !ok || p.peek() != '{' {
			return ""
		}
	}
	has := map[string]bool{}
	more, ok := p.open('}')
	for n := 0; more && ok && n < maxKnown; n++ {
		name, named := p.name()
		if !named {
			break
		}
		var t token
		if ok = p.value(&t); ok {
			has[name] = true
			more, ok = p.next('}')
		}
	}
	switch {
	case has["schema"] && has["payload"]:
		return "it is an envelope of Kafka Connect: set value.converter.schemas.enable=false, so that the value is the payload"
	case has["op"] && (has["before"] || has["after"]):
		return "it is a change event of Debezium: add the transformation io.debezium.transforms.ExtractNewRecordState, and map its fields to an event's"
	case has["@timestamp"] && has["message"] || has["message"] && (has["source_type"] || has["timestamp"]):
		return "it is a log shipper's record, and the event may be in its message: send that as the value"
	case has["specversion"] && has["type"]:
		return "it is a CloudEvent: send it with the header content-type: application/cloudevents+json"
	}
	return ""
}
