package event

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// Each value has one canonical form: what is counted under it, blocked by it, checked and commanded
// is the same text, whoever wrote it and however. The Decoder gives events in this form, emit sends
// it, NewDim and CanonicalDim make it of what was asked.
//
// A value that is too long is not a reason to discard an event, since whoever controls one value
// could go uncounted then: it is shortened. What is left has the SHA-256 of the whole in it, so
// that two values stay two.
const (
	hashSize = 2 * sha256.Size

	uidPrefix = "sha256-"  // of a uid that was too long, ahead of its hash
	cutMarker = "~sha256-" // between the beginning of a text that was cut and its hash
)

// CanonicalNumber returns the text by which keys compare a JSON number, as Value has it: 42
// for 42.0. It is false for what is no number, or one beyond all bounds.
func CanonicalNumber(s string) (text string, ok bool) {
	text, _, ok = canonicalNumber(s, nil)
	return text, ok
}

// CanonicalUID returns a uid as events and keys have it. Each byte that is no UTF-8 becomes U+FFFD.
// One that has more than MaxUID bytes then becomes "sha256-" and the 64 hexadecimal digits of its
// SHA-256. It allocates only when it changes something.
func CanonicalUID(uid string) string {
	if len(uid) <= MaxUID && isASCII(uid) {
		return uid
	}
	if uid = validText(uid); len(uid) <= MaxUID {
		return uid
	}
	return uidPrefix + hashText(uid)
}

// CanonicalText returns an attribute's value, or an outcome, as events and keys have it. Each byte
// that is no UTF-8 becomes U+FFFD. When its JSON then takes more than MaxText bytes (a quote and a
// backslash take two, a control character six), it is cut behind a whole character, and "~sha256-"
// and the 64 hexadecimal digits of the SHA-256 of all of it follow, MaxText bytes together at most.
// It allocates only when it changes something.
func CanonicalText(s string) string { return cutText(s, MaxText) }

// CanonicalDim returns a dimension's value as the keys of events have it; "" when no key can have
// it. Unlike NewDim it does not say why. It allocates nothing for a uid and attributes that are
// canonical.
func CanonicalDim(name, value string) string {
	switch {
	case name == "uid":
		return CanonicalUID(value)
	case strings.HasPrefix(name, "attrs."):
		return CanonicalText(value)
	}
	value, err := dimValue(name, value)
	if err != nil {
		return ""
	}
	return value
}

// canonicalID is an event's id, or refunds: one that is too long becomes the first 32 hexadecimal
// digits of its SHA-256.
func canonicalID(id string) string {
	if id = validText(id); len(id) <= MaxID {
		return id
	}
	return hashText(id)[:32]
}

func canonicalName(name string) string { return cutText(name, maxAttrName) }

// IsCanonical reports whether Canonicalize would change nothing.
func (e *Event) IsCanonical() bool {
	if !fits(e.UID, MaxUID, MaxUID) || !fits(e.ID, MaxID, MaxID) || !fits(e.Refunds, MaxID, MaxID) || !fits(e.Outcome, MaxText, MaxText/escaped) {
		return false
	}
	if e.Permit.ID != "" && !e.Permit.isCanonical() {
		return false
	}
	for i := range e.Attrs {
		a := &e.Attrs[i]
		if !fits(a.Name, maxAttrName, maxAttrName/escaped) || !fits(a.Value.Text, MaxText, MaxText/escaped) {
			return false
		}
	}
	return true
}

// fits reports whether s is UTF-8 and, up to so many bytes, surely short enough; else it looks
// whether its JSON is.
func fits(s string, limit, surely int) bool {
	if len(s) > limit || !isASCII(s) && !utf8.ValidString(s) {
		return false
	}
	return len(s) <= surely || jsonLen(s) <= limit
}

// Canonicalize gives e's texts their canonical form, so that an event is not discarded for a value
// that is too long. It shares no changed memory with what e was copied from: Attrs are copied
// before one is changed.
func (e *Event) Canonicalize() {
	e.UID, e.ID, e.Refunds, e.Outcome = CanonicalUID(e.UID), canonicalID(e.ID), canonicalID(e.Refunds), CanonicalText(e.Outcome)
	e.Permit.canonicalize()
	copied := false
	for i := range e.Attrs {
		a := e.Attrs[i]
		name, value := canonicalName(a.Name), canonicalValue(a.Value)
		if name == a.Name && value == a.Value {
			continue
		}
		if !copied {
			e.Attrs, copied = append([]Attr(nil), e.Attrs...), true
		}
		e.Attrs[i] = Attr{Name: name, Value: value}
	}
}

// canonicalValue cuts a value. What was cut is a string: a number of a thousand digits is nothing
// to calculate with.
func canonicalValue(v Value) Value {
	if text := CanonicalText(v.Text); text != v.Text {
		return Value{Kind: String, Text: text}
	}
	return v
}

// escaped is the greatest number of bytes of JSON for a byte: \u00XX.
const escaped = 6

func cutText(s string, limit int) string {
	if len(s) <= limit/escaped && isASCII(s) {
		return s
	}
	if s = validText(s); len(s) <= limit/escaped || len(s) <= limit && jsonLen(s) <= limit {
		return s
	}
	left := limit - len(cutMarker) - hashSize
	end := 0
	for end < len(s) {
		_, size := utf8.DecodeRuneInString(s[end:])
		if left -= jsonLen(s[end : end+size]); left < 0 {
			break
		}
		end += size
	}
	return s[:end] + cutMarker + hashText(s)
}

// jsonLen counts the bytes of the UTF-8 text s in AppendString, without the quotes.
func jsonLen(s string) int {
	n := len(s)
	for i := range len(s) {
		if c := s[i]; c < ' ' {
			n += escaped - 1
		} else if c == '"' || c == '\\' {
			n++
		}
	}
	return n
}

func hashText(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// isASCII looks at eight bytes at a time: it stands before every check of a long uid.
func isASCII(s string) bool {
	const high = 0x8080808080808080
	for len(s) >= 8 {
		if (uint64(s[0])|uint64(s[1])<<8|uint64(s[2])<<16|uint64(s[3])<<24|
			uint64(s[4])<<32|uint64(s[5])<<40|uint64(s[6])<<48|uint64(s[7])<<56)&high != 0 {
			return false
		}
		s = s[8:]
	}
	var or byte
	for i := range len(s) {
		or |= s[i]
	}
	return or < utf8.RuneSelf
}

// validText replaces bytes that are no UTF-8 as the scanner does in strings.
func validText(s string) string {
	if isASCII(s) || utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 2*len("\uFFFD"))
	for _, r := range s {
		b.WriteRune(r)
	}
	return b.String()
}
