package document

import "strings"

// source is a rule file's text, for quoting lines of it in errors.
type source struct {
	file  string
	lines []string
}

// newSource splits src as YAML does: at LF, CR, CRLF, NEL, LS and PS.
func newSource(file string, src []byte) *source {
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n").
		Replace(strings.TrimPrefix(string(src), "\ufeff"))
	return &source{file: file, lines: strings.Split(text, "\n")}
}

func (s *source) line(n int) string {
	if n < 1 || n > len(s.lines) {
		return ""
	}
	return s.lines[n-1]
}

// maxQuoted bounds a line that errors quote, in bytes. A file of one line would else be in each of its mistakes.
const maxQuoted = 16 << 10

// quoted is a line for an error; "" when it is too long.
func (s *source) quoted(n int) string {
	if line := s.line(n); len(line) <= maxQuoted {
		return line
	}
	return ""
}

func (s *source) errorAt(line, column int, message, hint string) *Error {
	return &Error{
		File: s.file, Line: line, Column: column,
		Message: message, Hint: hint, SourceLine: s.quoted(line),
	}
}
