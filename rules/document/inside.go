package document

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// inside finds the place in the file of the at-th character of a scalar's text. YAML folds and
// strips only blanks, so the other characters are walked side by side; where they differ, as
// after an escape, there is no telling.
func (s *source) inside(n *yaml.Node, at int) (line, column int, ok bool) {
	if len(s.line(n.Line)) > maxQuoted {
		return 0, 0, false // nobody would find it there
	}
	p := place{s: s, line: n.Line, column: n.Column}
	switch n.Style &^ yaml.TaggedStyle {
	case yaml.SingleQuotedStyle, yaml.DoubleQuotedStyle:
		p.column++
	case yaml.LiteralStyle, yaml.FoldedStyle:
		p.line, p.column = p.line+1, 1
	}
	if n.Style&yaml.TaggedStyle != 0 || n.Anchor != "" {
		return 0, 0, false
	}
	text := []rune(n.Value)
	end := len(strings.TrimRightFunc(n.Value, unicode.IsSpace))
	at = min(at, utf8.RuneCountInString(n.Value[:end]))
	for i := 0; i < at; i++ {
		if unicode.IsSpace(text[i]) {
			continue
		}
		if r, found := p.next(); !found || r != text[i] {
			return 0, 0, false
		}
		p.column++
	}
	if at < len(text) && !unicode.IsSpace(text[at]) {
		if r, found := p.next(); !found || r != text[at] {
			return 0, 0, false
		}
	}
	return p.line, p.column, true
}

// place is a character in a file.
type place struct {
	s            *source
	line, column int

	of   int // text is of this line
	text []rune
}

// next moves on to a character that is no blank, and returns it.
func (p *place) next() (rune, bool) {
	for ; p.line <= len(p.s.lines); p.line, p.column = p.line+1, 1 {
		if p.of != p.line {
			p.of, p.text = p.line, []rune(p.s.line(p.line))
		}
		for ; p.column <= len(p.text); p.column++ {
			if r := p.text[p.column-1]; !unicode.IsSpace(r) {
				return r, true
			}
		}
	}
	return 0, false
}
