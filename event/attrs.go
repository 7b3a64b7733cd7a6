package event

import (
	"fmt"
	"slices"
)

// readAttrs reads the attributes of the current event; they replace any it had.
func (d *Decoder) readAttrs() bool {
	p := &d.scan
	d.forgive(fieldAttrs)
	d.forgive(fieldAttrCount)
	d.arena = d.arena[:d.mark]
	var t token
	if p.peek() != '{' {
		if !p.value(&t) {
			return false
		}
		if t.kind != tokNull {
			d.mistake(fieldAttrs, "", ReasonAttrs, t.at, "expected an object of strings, numbers and booleans")
		}
		return true
	}
	more, ok := p.open('}')
	for k := 0; more && ok; k++ {
		name, known, named := d.attrs.name(p, k)
		if !named {
			return false
		}
		if ok = p.value(&t); ok {
			if !d.tooLarge() {
				if !known.canonical {
					name = canonicalName(name)
				}
				d.setAttr(name, &t)
			}
			more, ok = p.next('}')
		}
	}
	return ok
}

// badValue is the Kind of an attribute that is none. It takes its place among the others, so that
// there are never more mistakes than places; the event that has one at its end is not an event.
const badValue Kind = 0xff

// setAttr sets one attribute. One that is null or "" is absent.
func (d *Decoder) setAttr(name string, t *token) {
	if len(d.wrong) > 0 && d.failed(fieldAttrCount) {
		return // nothing behind it makes that good
	}
	d.forgiveAttr(name)
	v, reason, why := d.attrValue(t)
	own := d.arena[d.mark:]
	at := len(own) - 1
	for at >= 0 && own[at].Name != name {
		at--
	}
	switch {
	case v.Kind == String && v.Text == "":
		if at >= 0 {
			d.arena = slices.Delete(d.arena, d.mark+at, d.mark+at+1)
		}
		return
	case at >= 0:
		own[at].Value = v
	case len(own) == MaxAttrs:
		d.mistake(fieldAttrCount, "", ReasonAttrs, t.at, fmt.Sprintf("more than %d attributes: leave some out", MaxAttrs))
		return
	default:
		d.arena = append(d.arena, Attr{Name: name, Value: v})
	}
	if v.Kind == badValue {
		d.mistake(fieldAttrs, name, reason, t.at, why)
	}
}

// attrValue is an attribute's canonical value; of a badValue also why it is none.
func (d *Decoder) attrValue(t *token) (v Value, reason, why string) {
	v = Value{Kind: String, Text: t.text}
	if t.isShort() {
		if t.kind == tokNumber {
			v.Kind = Number
		}
		return v, "", ""
	}
	switch t.kind {
	case tokNull:
		v.Text = ""
	case tokBool:
		v.Kind = Bool
	case tokNumber:
		var ok bool
		v.Kind = Number
		if v.Text, d.scan.buf, ok = canonicalNumber(t.text, d.scan.buf); !ok {
			return Value{Kind: badValue}, ReasonAttrs, "a number with an exponent beyond all bounds: write it as a string"
		}
	case tokObject, tokArray:
		return Value{Kind: badValue}, ReasonNested, "an attribute is a string, a number or a boolean: flatten it, such as a.b"
	}
	return canonicalValue(v), "", ""
}

func (d *mistakes) forgiveAttr(name string) {
	if len(d.wrong) > 0 {
		d.wrong = slices.DeleteFunc(d.wrong, func(m mistake) bool { return m.field == fieldAttrs && m.attr == name })
	}
}
