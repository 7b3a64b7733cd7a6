package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// Bounds on what a rule file may be. Rule files are written by people: these only keep a
// hostile one from costing more than a moment.
const (
	maxSource = 1 << 20 // bytes
	maxDepth  = 64      // nested YAML collections
	maxNodes  = 1 << 19 // YAML nodes that are read, those behind aliases each time
)

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

func (s *source) errorAt(line, column int, message, hint string) *Error {
	return &Error{
		File: s.file, Line: line, Column: column,
		Message: message, Hint: hint, SourceLine: s.line(line),
	}
}

// Messages of parseYAML that are told otherwise of files that hold no rules.
const (
	noRuleSet      = "the file holds no rule set"
	secondDocument = "a second YAML document"
)

// parseYAML returns the root node of a file that holds exactly one document.
func parseYAML(src []byte, at *source) (*yaml.Node, *Error) {
	if err := checkText(src, at); err != nil {
		return nil, err
	}
	loader, err := yaml.NewLoader(bytes.NewReader(src),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		return nil, at.errorAt(1, 1, err.Error(), "")
	}
	var document yaml.Node
	if err := loader.Load(&document); errors.Is(err, io.EOF) {
		return nil, emptyFile(at)
	} else if err != nil {
		return nil, syntaxError(err, at)
	}
	var second yaml.Node
	if err := loader.Load(&second); err == nil {
		return nil, at.errorAt(max(second.Line, 1), max(second.Column, 1),
			secondDocument, "one file holds one RuleSet: put the other into a file of its own")
	} else if !errors.Is(err, io.EOF) {
		return nil, syntaxError(err, at)
	}
	if len(document.Content) == 0 || isNull(document.Content[0]) {
		return nil, emptyFile(at)
	}
	return document.Content[0], nil
}

func emptyFile(at *source) *Error {
	return at.errorAt(1, 1, noRuleSet,
		"a rule set begins with `apiVersion: tallygate.dev/v1` and `kind: RuleSet`")
}

// checkText refuses what YAML would refuse without saying where.
func checkText(src []byte, at *source) *Error {
	if len(src) > maxSource {
		return &Error{File: at.file, Line: 1, Column: 1,
			Message: fmt.Sprintf("the file has %d bytes, and a rule file may have %d", len(src), maxSource)}
	}
	for n, line := range at.lines {
		column := 0
		for i, r := range line {
			column++
			if r == utf8.RuneError && !strings.HasPrefix(line[i:], "\ufffd") {
				return at.errorAt(n+1, column, "this is not UTF-8 text", "save the file as UTF-8")
			}
			if r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 {
				return at.errorAt(n+1, column, fmt.Sprintf("a control character (%U)", r), "remove it")
			}
		}
	}
	return nil
}

// syntaxError turns the YAML package's error into ours.
func syntaxError(err error, at *source) *Error {
	load, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		return at.errorAt(1, 1, err.Error(), "")
	}
	if what := foreignText(at.lines); what != "" {
		return &Error{File: at.file, Line: 1, Column: 1, Message: what}
	}
	if cause := at.behindSyntax(load.Mark.Line); cause != nil {
		return cause
	}
	mark := load.Mark
	message := load.Message
	if strings.Contains(load.ContextMsg, "quoted scalar") {
		mark = load.ContextMark // the end of the file says nothing
	} else if load.ContextMsg != "" {
		message += ", " + load.ContextMsg
		if c := load.ContextMark; c.Line > 0 && c.Line != mark.Line {
			message += fmt.Sprintf(" that begins on line %d", c.Line)
		}
	}
	return at.errorAt(max(mark.Line, 1), max(mark.Column, 1), "not valid YAML: "+message, syntaxHint(load))
}

func syntaxHint(load *yaml.LoadError) string {
	text := load.ContextMsg + ": " + load.Message
	switch {
	case strings.Contains(text, "scanning an alias"), strings.Contains(text, "unknown anchor"):
		return "quote a pattern that begins with `*`, as in api: \"*\""
	case strings.Contains(text, "tab character"):
		return "indent with spaces"
	case strings.Contains(text, "cannot start any token"):
		return "quote text that begins with one of @ ` % & * ! | > [ {"
	case strings.Contains(text, "mapping values are not allowed"):
		return "check the indentation, and quote text that holds `: `"
	case strings.Contains(text, "flow sequence"):
		return "a `[` needs its `]`, with commas between"
	case strings.Contains(text, "flow mapping"):
		return "a `{` needs its `}`, with commas between"
	case strings.Contains(text, "quoted scalar"):
		return "the quote is never closed"
	case strings.Contains(text, "block mapping"), strings.Contains(text, "block collection"):
		return "check the indentation: fields of one mapping begin in one column"
	}
	return ""
}
