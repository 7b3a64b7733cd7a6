// Package terminal keeps foreign text from drawing on a terminal.
package terminal

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Writer writes text of which parts are foreign: keys and APIs of events, names and errors of servers. No
// control character but line breaks and tabs gets through, nor what turns the direction of writing: they are
// written as \u001b, which JSON reads as the same character. What is no UTF-8 is written as \x9b. It is safe
// for concurrent use.
type Writer struct {
	out io.Writer

	mu   sync.Mutex
	part []byte // the beginning of a character whose rest has not come
	safe []byte
}

// New returns a Writer in front of out.
func New(out io.Writer) *Writer { return &Writer{out: out} }

// Under is the writer behind it, for those who draw on it what is their own.
func (t *Writer) Under() io.Writer { return t.out }

// Write writes p, all of it unless there is an error.
func (t *Writer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.part) == 0 && isPlain(p) {
		return t.out.Write(p)
	}
	text := slices.Concat(t.part, p)
	t.part = nil
	t.safe = t.safe[:0]
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			t.part = append([]byte(nil), text...)
			break
		}
		r, size := utf8.DecodeRune(text)
		t.safe = appendSafe(t.safe, r, text[:size])
		text = text[size:]
	}
	if len(t.safe) > 0 {
		if _, err := t.out.Write(t.safe); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Close writes the beginning of a character whose rest never came. What is behind it stays open.
func (t *Writer) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.part {
		if _, err := fmt.Fprintf(t.out, `\x%02x`, b); err != nil {
			return err
		}
	}
	t.part = nil
	return nil
}

// isPlain reports whether nothing in a text is to be looked at.
func isPlain(p []byte) bool {
	for _, b := range p {
		if (b < ' ' && b != '\n' && b != '\t') || b > '~' {
			return false
		}
	}
	return true
}

func appendSafe(dst []byte, r rune, raw []byte) []byte {
	switch {
	case r == utf8.RuneError && len(raw) == 1:
		return fmt.Appendf(dst, `\x%02x`, raw[0])
	case r == '\n' || r == '\t' || unicode.IsGraphic(r):
		return append(dst, raw...)
	case r > 0xffff:
		high, low := utf16.EncodeRune(r)
		return fmt.Appendf(dst, `\u%04x\u%04x`, high, low)
	}
	return fmt.Appendf(dst, `\u%04x`, r)
}
