package event

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
)

// FormatKey returns the record-key text of dims in the order of their names.
func FormatKey(dims []Dim) string { return string(AppendKey(nil, dims)) }

// AppendKey appends the record-key text of dims, in the order of their names, to dst.
func AppendKey(dst []byte, dims []Dim) []byte {
	if !slices.IsSortedFunc(dims, byName) {
		dims = slices.Clone(dims)
		slices.SortFunc(dims, byName)
	}
	for i, d := range dims {
		if i > 0 {
			dst = append(dst, '&')
		}
		dst = appendEscaped(dst, d.Name, '/')
		dst = append(dst, '=')
		dst = appendEscaped(dst, d.Value, 0)
	}
	return dst
}

func byName(a, b Dim) int { return cmp.Compare(a.Name, b.Name) }

// ParseKey is the inverse of AppendDim: it returns the dimensions of a record-key text, in their
// order. What it returns shares no memory with text.
func ParseKey(text []byte) ([]Dim, error) {
	var dims []Dim
	for part := range bytes.SplitSeq(text, []byte{'&'}) {
		name, value, ok := bytes.Cut(part, []byte{'='})
		if !ok || len(name) == 0 || len(value) == 0 {
			return nil, fmt.Errorf("event: parse key %.80q: want dimension=value, joined by &", text)
		}
		n, err := unescape(name)
		if err != nil {
			return nil, fmt.Errorf("event: parse key %.80q: %w", text, err)
		}
		v, err := unescape(value)
		if err != nil {
			return nil, fmt.Errorf("event: parse key %.80q: %w", text, err)
		}
		if slices.ContainsFunc(dims, func(d Dim) bool { return d.Name == n }) {
			return nil, fmt.Errorf("event: parse key %.80q: dimension %q is there twice", text, n)
		}
		dims = append(dims, Dim{Name: n, Value: v})
	}
	return dims, nil
}

func unescape(s []byte) (string, error) {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			out = append(out, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("%q ends within a percent-encoded byte", s)
		}
		hi, lo := unhex(s[i+1]), unhex(s[i+2])
		if hi > 15 || lo > 15 {
			return "", fmt.Errorf("%q is no percent-encoded byte", s[i:i+3])
		}
		out = append(out, hi<<4|lo)
		i += 2
	}
	return string(out), nil
}

// unhex returns what a hexadecimal digit stands for, more than 15 for any other byte.
func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 0xff
}
