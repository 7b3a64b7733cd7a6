package event

import (
	"encoding/base64"
	"strings"
)

// cloudEvent holds a CloudEvent's attributes.
type cloudEvent struct {
	id, source, typ, subject, time token // tokNull when absent
	data, data64                   token
}

// IsCloudEvents reports whether a header of this name matters to Decode: the others need not
// be given to it.
func IsCloudEvents(header []byte) bool {
	return len(header) >= 3 && strings.EqualFold(string(header[:3]), "ce_") || strings.EqualFold(string(header), "content-type")
}

// readHeaders finds out how the record is written. https://github.com/cloudevents/spec,
// cloudevents/bindings/kafka-protocol-binding.md
func (d *Decoder) readHeaders(headers []Header) {
	d.cloud = cloudEvent{}
	c := &d.cloud
	content := ""
	for i := range headers {
		name := headers[i].Key
		if strings.EqualFold(name, "content-type") {
			content = sharedString(headers[i].Value)
			continue
		}
		if len(name) < 3 || !strings.EqualFold(name[:3], "ce_") {
			continue
		}
		to := c.attribute(strings.ToLower(name[3:]))
		if strings.EqualFold(name, "ce_specversion") || to == &c.id || to == &c.typ {
			d.mode = inHeaders
		}
		if to != nil {
			*to = token{kind: tokString, text: validText(sharedString(headers[i].Value))}
		}
	}
	switch media, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(content)), ";"); {
	case strings.HasPrefix(media, "application/cloudevents-batch+json"):
		d.mode = batch
	case strings.HasPrefix(media, "application/cloudevents+json"):
		d.mode = structured
	}
}

func (c *cloudEvent) attribute(name string) *token {
	switch name {
	case "id":
		return &c.id
	case "source":
		return &c.source
	case "type":
		return &c.typ
	case "subject":
		return &c.subject
	case "time":
		return &c.time
	case "data":
		return &c.data
	case "data_base64":
		return &c.data64
	}
	return nil
}

// envelope reads a structured CloudEvent, then the event's other fields from its data.
func (d *Decoder) envelope() bool {
	p := &d.scan
	d.cloud = cloudEvent{}
	var t token
	more, ok := p.open('}')
	for more && ok {
		name, named := p.name()
		if !named || !p.value(&t) {
			return false
		}
		if to := d.cloud.attribute(name); to != nil {
			*to = t
		}
		more, ok = p.next('}')
	}
	if ok && !d.tooLarge() {
		d.data()
	}
	return ok
}

func (d *Decoder) data() {
	t := d.cloud.data
	if t.kind == tokNull && d.cloud.data64.kind == tokString {
		d.data64()
		return
	}
	if t.kind == tokNull {
		return
	}
	if t.kind != tokObject {
		d.mistake(fieldNone, "", ReasonNotObject, t.at, "data is not an object: it holds the event's other fields")
		return
	}
	p := &d.scan
	behind, depth := p.i, p.depth
	p.i = t.at
	d.object() // the envelope's own scan found that it is JSON
	p.i, p.depth = behind, depth
}

func (d *Decoder) data64() {
	at := d.cloud.data64.at
	text, err := base64.StdEncoding.DecodeString(d.cloud.data64.text)
	outer := d.scan
	d.scan = scanner{s: string(text), buf: outer.buf}
	ok := err == nil && d.scan.peek() == '{' && d.object() && d.scan.peek() == 0
	outer.buf = d.scan.buf
	d.scan = outer
	for i := range d.wrong {
		d.wrong[i].at = at
	}
	if !ok {
		d.mistake(fieldNone, "", ReasonNotObject, at, "data_base64 is not an object in base64: it holds the event's other fields")
	}
}

// setCloud lets the CloudEvents attributes fill their fields; they win over the data's.
func (d *Decoder) setCloud(start int) {
	c := &d.cloud
	for _, a := range []struct {
		field field
		t     *token
	}{{fieldTime, &c.time}, {fieldAPI, &c.typ}, {fieldUID, &c.subject}} {
		if a.t.kind != tokNull && (a.t.kind != tokString || a.t.text != "") {
			if d.mode == inHeaders {
				a.t.at = start
			}
			d.set(a.field, "", a.t)
		}
	}
	if c.id.kind == tokNull || (c.id.kind == tokString && c.id.text == "") {
		return
	}
	id := c.id
	if id.kind == tokString && c.source.kind == tokString && c.source.text != "" {
		id.text, id.plain = c.source.text+"/"+id.text, false
	}
	d.set(fieldID, "", &id)
}
