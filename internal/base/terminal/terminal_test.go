package terminal

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func written(parts ...string) string {
	var b bytes.Buffer
	t := New(&b)
	for _, p := range parts {
		if n, err := t.Write([]byte(p)); n != len(p) || err != nil {
			return "short"
		}
	}
	if err := t.Close(); err != nil {
		return err.Error()
	}
	return b.String()
}

func TestTerminal(t *testing.T) {
	for _, c := range [][2]string{
		{"RULE\tCOUNT\nübung 漢字 €\n", "RULE\tCOUNT\nübung 漢字 €\n"}, {"\x1b]0;x\a\r", `\u001b]0;x\u0007\u000d`}, {"a\x7f\u202eb\u2028", `a\u007f\u202eb\u2028`},
		{"\u009b31m\x9b31m", `\u009b31m\x9b31m`}, {"\U000e0001", `\udb40\udc01`},
	} {
		if got := written(c[0]); got != c[1] {
			t.Errorf("%q becomes %q, want %q", c[0], got, c[1])
		}
	}
	if got := written("a\xe2", "\x82", "\xac b\xe2\x80", "\xae\xe2"); got != `a€ b\u202e\xe2` {
		t.Errorf("characters in parts: %q", got)
	}
}

// FuzzTerminal: nothing draws, and JSON stays the same JSON.
func FuzzTerminal(f *testing.F) {
	f.Add("a\x1b[2J\u202e\U000e0001", 3)
	f.Add("\xff\xe2\x80", 1)
	f.Fuzz(func(t *testing.T, text string, at int) {
		at = min(max(at, 0), len(text))
		got := written(text[:at], text[at:])
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsGraphic(r) }) {
			t.Fatalf("%q becomes %q", text, got)
		}
		in, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var want, is string
		if json.Unmarshal(in, &want) != nil || json.Unmarshal([]byte(written(string(in))), &is) != nil || is != want {
			t.Fatalf("%s becomes %s", in, written(string(in)))
		}
	})
}
