package event

import "unicode/utf8"

// AppendJSON appends the event's wire form to dst: one JSON object on one line, without what is
// absent. Decoding it gives the same event, if the event is valid. Bytes of strings that
// are no UTF-8 become U+FFFD.
func AppendJSON(dst []byte, e *Event) []byte {
	dst = append(dst, '{')
	start := len(dst)
	dst = appendText(dst, start, "id", e.ID)
	dst = appendMoment(dst, start, "time", e.Time)
	dst = appendText(dst, start, "uid", e.UID)
	dst = appendText(dst, start, "api", e.API)
	dst = appendText(dst, start, "outcome", e.Outcome)
	if e.Cost != One {
		dst = e.Cost.AppendTo(appendName(dst, start, "cost"))
	}
	dst = appendText(dst, start, "refunds", e.Refunds)
	if e.IP.IsValid() {
		dst = append(appendName(dst, start, "ip"), '"')
		dst = append(e.IP.Unmap().WithZone("").AppendTo(dst), '"')
	}
	dst = appendAttrs(dst, start, e.Attrs)
	if e.Permit.ID != "" {
		dst = appendPermit(dst, start, &e.Permit)
	}
	dst = appendMoment(dst, start, "broker_time", e.BrokerTime)
	return append(dst, '}')
}

func appendAttrs(dst []byte, start int, attrs []Attr) []byte {
	open := false
	for i := range attrs {
		v := &attrs[i].Value
		if v.Text == "" {
			continue
		}
		if open {
			dst = append(dst, ',')
		} else {
			dst = append(appendName(dst, start, "attrs"), '{')
			open = true
		}
		dst = append(AppendString(dst, attrs[i].Name), ':')
		dst = appendValue(dst, v)
	}
	if open {
		dst = append(dst, '}')
	}
	return dst
}

// appendValue writes numbers in their canonical form, and what is no value of its Kind as a string.
func appendValue(dst []byte, v *Value) []byte {
	switch v.Kind {
	case Number:
		if text, built, ok := canonicalNumber(v.Text, dst); ok {
			if len(built) > len(dst) {
				return built
			}
			return append(dst, text...)
		}
	case Bool:
		if v.wellFormed() {
			return append(dst, v.Text...)
		}
	}
	return AppendString(dst, v.Text)
}

func appendName(dst []byte, start int, name string) []byte {
	if len(dst) > start {
		dst = append(dst, ',')
	}
	dst = append(dst, '"')
	dst = append(dst, name...)
	return append(dst, '"', ':')
}

func appendText(dst []byte, start int, name, text string) []byte {
	if text == "" {
		return dst
	}
	return AppendString(appendName(dst, start, name), text)
}

func appendMoment(dst []byte, start int, name string, m Micros) []byte {
	if m == NoTime {
		return dst
	}
	dst = append(appendName(dst, start, name), '"')
	return append(m.AppendTo(dst), '"')
}

// AppendString appends s as a JSON string. Bytes that are no UTF-8 become U+FFFD.
func AppendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if !special[c] {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			if r, size := utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		dst = append(dst, s[start:i]...)
		switch {
		case c >= utf8.RuneSelf:
			dst = append(dst, "\uFFFD"...)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, '\\', c)
		}
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
