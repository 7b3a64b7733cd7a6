package event

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Validate returns all that keeps e from being an event, joined; nil when its wire form decodes to
// the same event. It is for those who send: what Decode returned is valid, and Canonicalize
// shortens what is too long.
func (e *Event) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("event: "+format, args...)) }
	for _, f := range []struct {
		name, text string
		limit      int
	}{{"api", e.API, MaxAPI}, {"uid", e.UID, MaxUID}, {"id", e.ID, MaxID}, {"refunds", e.Refunds, MaxID}, {"permit", e.Permit.ID, MaxID}} {
		if n := wireLen(f.text); n > f.limit {
			wrong("%s has %d bytes, at most %d are allowed", f.name, n, f.limit)
		}
	}
	if e.API == "" {
		wrong("there is no api: name the action, such as order.create")
	}
	if n := jsonLen(validText(e.Outcome)); n > MaxText {
		wrong("outcome has %d bytes of JSON, at most %d are allowed", n, MaxText)
	}
	if strings.ContainsFunc(e.API, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		wrong("api %q has a control character", e.API)
	}
	if e.Cost < 0 && e.Refunds == "" {
		wrong("a negative cost (%v) needs refunds: name the event that it takes back", e.Cost)
	}
	if e.Cost < -MaxDecimal {
		wrong("cost is below -%v", MaxDecimal)
	}
	if e.IP.Zone() != "" || e.IP.Is4In6() {
		wrong("ip %v has a zone or is an IPv4-mapped address: use IP.WithZone(\"\").Unmap()", e.IP)
	}
	for _, m := range []Micros{e.Time, e.BrokerTime} {
		if m != NoTime && (m < MinTime || m > MaxTime) {
			wrong("time %d µs is outside the years 0 to 9999", int64(m))
		}
	}
	errs = append(errs, e.validateAttrs(), e.Permit.validate())
	if n := len(AppendJSON(nil, e)); n > MaxBytes {
		wrong("%d bytes of JSON, at most %d are allowed", n, MaxBytes)
	}
	return errors.Join(errs...)
}

func (e *Event) validateAttrs() error {
	var errs []error
	if len(e.Attrs) > MaxAttrs {
		return fmt.Errorf("event: %d attributes, at most %d are allowed", len(e.Attrs), MaxAttrs)
	}
	for i := range e.Attrs {
		a := &e.Attrs[i]
		for j := range i {
			if e.Attrs[j].Name == a.Name {
				errs = append(errs, fmt.Errorf("event: attribute %q is there twice", a.Name))
			}
		}
		if n := jsonLen(validText(a.Name)); n > maxAttrName {
			errs = append(errs, fmt.Errorf("event: an attribute's name has %d bytes of JSON, at most %d are allowed: %.80q", n, maxAttrName, a.Name))
		}
		if n := jsonLen(validText(a.Value.Text)); n > MaxText {
			errs = append(errs, fmt.Errorf("event: attribute %.80q has %d bytes of JSON, at most %d are allowed", a.Name, n, MaxText))
		}
		if !a.Value.wellFormed() {
			errs = append(errs, fmt.Errorf("event: attribute %q is not a %v in canonical form: make it with NumberValue or BoolValue", a.Name, a.Value.Kind))
		}
	}
	return errors.Join(errs...)
}

// wireLen is len(s) on the wire, where each byte that is no UTF-8 is U+FFFD.
func wireLen(s string) int {
	n := len(s)
	for i, r := range s {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				n += len("\uFFFD") - 1
			}
		}
	}
	return n
}

// Clone returns a copy that shares no memory with e.
func (e *Event) Clone() Event {
	c := *e
	c.ID, c.UID, c.API = strings.Clone(e.ID), strings.Clone(e.UID), strings.Clone(e.API)
	c.Outcome, c.Refunds, c.Permit = strings.Clone(e.Outcome), strings.Clone(e.Refunds), e.Permit.clone()
	if e.Attrs != nil {
		c.Attrs = make([]Attr, len(e.Attrs))
		for i, a := range e.Attrs {
			c.Attrs[i] = Attr{Name: strings.Clone(a.Name), Value: Value{Kind: a.Value.Kind, Text: strings.Clone(a.Value.Text)}}
		}
	}
	return c
}
