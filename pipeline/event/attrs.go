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
	for more && ok {
		name, named := p.name()
		if !named {
			return false
		}
		if ok = p.value(&t); ok {
			d.setAttr(name, &t)
			more, ok = p.next('}')
		}
	}
	return ok
}

// setAttr sets one attribute. One that is null or "" is absent.
func (d *Decoder) setAttr(name string, t *token) {
	d.forgiveAttr(name)
	v := Value{Kind: String, Text: t.text}
	switch t.kind {
	case tokNull:
		v.Text = ""
	case tokBool:
		v.Kind = Bool
	case tokNumber:
		var ok bool
		v.Kind = Number
		if v.Text, d.scan.buf, ok = canonicalNumber(t.text, d.scan.buf); !ok {
			v.Text = ""
			d.mistake(fieldAttrs, name, ReasonAttrs, t.at, "a number with an exponent beyond all bounds: write it as a string")
		}
	case tokObject, tokArray:
		v.Text = ""
		d.mistake(fieldAttrs, name, ReasonNested, t.at, "an attribute is a string, a number or a boolean: flatten it, such as a.b")
	}
	own := d.arena[d.mark:]
	at := -1
	for i := range own {
		if own[i].Name == name {
			at = i
			break
		}
	}
	switch {
	case v.Text == "":
		if at >= 0 {
			d.arena = slices.Delete(d.arena, d.mark+at, d.mark+at+1)
		}
	case at >= 0:
		own[at].Value = v
	case len(own) == MaxAttrs:
		if !d.failed(fieldAttrCount) {
			d.mistake(fieldAttrCount, "", ReasonAttrs, t.at, fmt.Sprintf("more than %d attributes: leave some out", MaxAttrs))
		}
	default:
		d.arena = append(d.arena, Attr{Name: name, Value: v})
	}
}

func (d *Decoder) forgiveAttr(name string) {
	if len(d.wrong) > 0 {
		d.wrong = slices.DeleteFunc(d.wrong, func(m mistake) bool { return m.field == fieldAttrs && m.attr == name })
	}
}
