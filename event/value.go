package event

import "strings"

// StringValue is a string as an attribute's value; "" is an absent attribute.
func StringValue(s string) Value { return Value{Kind: String, Text: s} }

// NumberValue is a number as an attribute's value.
func NumberValue(d Decimal) Value { return Value{Kind: Number, Text: d.String()} }

// BoolValue is a boolean as an attribute's value.
func BoolValue(b bool) Value {
	if b {
		return Value{Kind: Bool, Text: "true"}
	}
	return Value{Kind: Bool, Text: "false"}
}

// String returns the kind's name.
func (k Kind) String() string {
	switch k {
	case String:
		return "string"
	case Number:
		return "number"
	case Bool:
		return "boolean"
	}
	return "unknown"
}

// Decimal returns a number cut to millionths, towards zero, and saturated at ±MaxDecimal. It is
// false for a string, also for one that looks like a number, and for a boolean.
func (v Value) Decimal() (Decimal, bool) {
	if v.Kind != Number {
		return 0, false
	}
	n, ok := splitNumber(v.Text)
	if !ok {
		return 0, false
	}
	d, _ := n.decimal()
	return d, true
}

// wellFormed reports whether Text is one that decoding gives this Kind.
func (v Value) wellFormed() bool {
	switch v.Kind {
	case String:
		return true
	case Number:
		text, _, ok := canonicalNumber(v.Text, nil)
		return ok && text == v.Text
	case Bool:
		return v.Text == "true" || v.Text == "false"
	}
	return false
}

// Dim returns the event's value of a dimension: uid, api, all, attrs.NAME, ip, or a network that the
// address is in: see AddressDim.
func (e *Event) Dim(name string) (value string, ok bool) {
	switch name {
	case "uid":
		return e.UID, e.UID != ""
	case dimAPI:
		return e.API, e.API != ""
	case dimAll:
		return allValue, true
	}
	if attr, isAttr := strings.CutPrefix(name, "attrs."); isAttr {
		v, ok := e.Attr(attr)
		return v.Text, ok
	}
	d, ok := ParseAddressDim(name)
	if !ok || !e.IP.IsValid() {
		return "", false
	}
	return string(d.AppendTo(nil, e.IP)), true
}
