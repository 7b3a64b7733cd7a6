package rules

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tallygate/tallygate/rules/when"
	"go.yaml.in/yaml/v4"
)

// when compiles a predicate; nil when there is a mistake in it.
func (c *compiler) when(n *yaml.Node) *when.Predicate {
	source, ok := c.text(n, "when")
	if !ok {
		return nil
	}
	p, mistakes := when.Compile(source, c.zones)
	for _, m := range mistakes {
		if m.Severity == when.Syntax && n.Style == 0 && strings.Contains(c.src.line(n.Line), " #") {
			m.Hint = "in YAML, a # behind a blank begins a comment: put the predicate into quotes"
		}
		e := c.errorInside(n, m.At, m.Hint, m.Message)
		switch m.Severity {
		case when.Refused, when.Syntax:
			c.errs = append(c.errs, e)
		case when.Doubt:
			c.warned = append(c.warned, e)
		case when.Never:
			if !c.refuse(e) {
				p = nil
			}
		}
	}
	return p
}

func (c *compiler) errorInside(n *yaml.Node, at int, hint, message string) *Error {
	e := c.errorAt(n, hint, message)
	if line, column, ok := c.src.inside(n, at); ok {
		e.Line, e.Column, e.SourceLine = line, column, c.src.line(line)
	}
	return e
}

// inside finds the place in the file of the at-th character of a scalar's text. YAML folds and
// strips only blanks, so the other characters are walked side by side; where they differ, as
// after an escape, there is no telling.
func (s *source) inside(n *yaml.Node, at int) (line, column int, ok bool) {
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
}

// next moves on to a character that is no blank, and returns it.
func (p *place) next() (rune, bool) {
	for ; p.line <= len(p.s.lines); p.line, p.column = p.line+1, 1 {
		text := []rune(p.s.line(p.line))
		for ; p.column <= len(text); p.column++ {
			if r := text[p.column-1]; !unicode.IsSpace(r) {
				return r, true
			}
		}
	}
	return 0, false
}
