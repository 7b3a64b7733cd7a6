package event

import "encoding/hex"

// HeaderTrace is the record header with the W3C trace context of the events in the record, as in an HTTP
// request: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01. Any producer may set it. Nothing is
// counted otherwise for it.
const HeaderTrace = "traceparent"

// Trace is the context of a sampled span: its own id, and that of the trace it belongs to. The zero value
// is none. A context that is not sampled is none either: nobody would send its spans.
type Trace struct {
	ID   [16]byte
	Span [8]byte
}

// traceBytes is the length of a traceparent of version 00.
const traceBytes = len("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")

// IsZero reports whether there is no context.
func (t Trace) IsZero() bool { return t == Trace{} }

// ParseTrace reads a traceparent. It is false for one that is not sampled, and for one that is invalid,
// which is to be treated as absent. A later version is read as far as version 00 goes, as W3C wants it.
func ParseTrace[T string | []byte](text T) (t Trace, sampled bool) {
	if len(text) < traceBytes || text[2] != '-' || text[35] != '-' || text[52] != '-' {
		return Trace{}, false
	}
	version, flags := hexByte(text[0], text[1]), hexByte(text[53], text[54])
	switch {
	case version < 0 || version == 0xff || flags < 0 || flags&1 == 0:
		return Trace{}, false
	case len(text) > traceBytes && (version == 0 || text[traceBytes] != '-'):
		return Trace{}, false
	}
	if !hexBytes(t.ID[:], text[3:35]) || !hexBytes(t.Span[:], text[36:52]) {
		return Trace{}, false
	}
	return t, true
}

// AppendTo appends the traceparent.
func (t Trace) AppendTo(dst []byte) []byte {
	dst = hex.AppendEncode(append(dst, "00-"...), t.ID[:])
	dst = hex.AppendEncode(append(dst, '-'), t.Span[:])
	return append(dst, "-01"...)
}

// String is the traceparent; "" for none.
func (t Trace) String() string {
	if t.IsZero() {
		return ""
	}
	return string(t.AppendTo(nil))
}

// hexBytes fills dst. It is false for what is not lower-case hex, and for nothing but zeros: W3C has no
// such ids.
func hexBytes[T string | []byte](dst []byte, text T) bool {
	some := byte(0)
	for i := range dst {
		b := hexByte(text[2*i], text[2*i+1])
		if b < 0 {
			return false
		}
		dst[i] = byte(b)
		some |= dst[i]
	}
	return some != 0
}

// hexByte is -1 for what is not lower-case hex.
func hexByte(high, low byte) int {
	h, l := hexDigit(high), hexDigit(low)
	if h < 0 || l < 0 {
		return -1
	}
	return h<<4 | l
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}
