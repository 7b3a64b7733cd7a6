// Package keytext is how people read and write keys: dimension=value, with a space between two of them.
// What Format writes can be pasted behind a command in a shell, and Parse takes it back. The record keys
// of Kafka and Redis have another form, which is percent-encoded throughout: Parse takes that one, too.
package keytext

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tallygate/tallygate/event"
)

// Format returns a key as text: attrs.campaign=summer ip/64=2001:db8::/64 uid=42. Letters and digits of
// all languages, and what neither a shell nor Parse takes for something else, stand for themselves.
// Everything else is percent-encoded.
func Format(key []event.Dim) string {
	if !slices.IsSortedFunc(key, byName) {
		key = slices.Clone(key)
		slices.SortFunc(key, byName)
	}
	var b strings.Builder
	for i, d := range key {
		if i > 0 {
			b.WriteByte(' ')
		}
		escape(&b, d.Name, "/")
		b.WriteByte('=')
		escape(&b, d.Value, "/:@,+=")
	}
	return b.String()
}

// FormatMap is Format for a key as JSON has it.
func FormatMap(key map[string]string) string {
	dims := make([]event.Dim, 0, len(key))
	for name, value := range key {
		dims = append(dims, event.Dim{Name: name, Value: value})
	}
	return Format(dims)
}

func byName(a, b event.Dim) int { return cmp.Compare(a.Name, b.Name) }

// escape writes text; what is in plain stands for itself there.
func escape(b *strings.Builder, text, plain string) {
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		bad := r == utf8.RuneError && size == 1
		ascii := r < utf8.RuneSelf && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._~"+plain, r))
		if ascii || !bad && r >= utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsNumber(r)) {
			b.WriteString(text[:size])
		} else {
			for _, c := range []byte(text[:size]) {
				fmt.Fprintf(b, "%%%02X", c)
			}
		}
		text = text[size:]
	}
}

// ErrNone is returned where no dimension is given.
var ErrNone = errors.New("a key needs dimension=value, such as uid=42")

// Parse returns the key that texts name, with its dimensions as events have them, sorted by name. A text
// holds one dimension or several, with spaces or & between them. Percent-encoded bytes are decoded; a
// value in which a % stands for anything else is taken as it is.
func Parse(texts ...string) ([]event.Dim, error) {
	var key []event.Dim
	for _, text := range texts {
		for _, part := range split(text) {
			name, value, ok := strings.Cut(part, "=")
			if !ok || name == "" || value == "" {
				return nil, fmt.Errorf("%q is not a key: write dimension=value, such as uid=42", part)
			}
			d, err := event.NewDim(unescape(name), unescape(value))
			if err != nil {
				return nil, fmt.Errorf("%q is not a key: %w", part, err)
			}
			if slices.ContainsFunc(key, func(other event.Dim) bool { return other.Name == d.Name }) {
				return nil, fmt.Errorf("%s is given twice: name one key at a time", d.Name)
			}
			key = append(key, d)
		}
	}
	if len(key) == 0 {
		return nil, ErrNone
	}
	slices.SortFunc(key, byName)
	return key, nil
}

// split cuts a text where a space or & stands before the name of a dimension. Elsewhere both belong to
// the value, as in attrs.shop='books & more'.
func split(text string) (parts []string) {
	begin := 0
	for i := range len(text) {
		if text[i] != ' ' && text[i] != '&' {
			continue
		}
		name, _, ok := strings.Cut(text[i+1:], "=")
		if ok && event.IsDim(unescape(name)) {
			if part := strings.TrimRight(text[begin:i], " &"); part != "" {
				parts = append(parts, part)
			}
			begin = i + 1
		}
	}
	return append(parts, text[begin:])
}

// unescape decodes percent-encoded bytes. A text in which another % stands is what somebody typed.
func unescape(text string) string {
	decoded, err := url.PathUnescape(text)
	if err != nil {
		return text
	}
	return decoded
}
