package document

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

// Bounds on what a file may be. Files are written by people: these only keep a
// hostile one from costing more than a moment.
const (
	maxSource = 1 << 20 // bytes
	maxDepth  = 64      // nested YAML collections
	maxNodes  = 1 << 19 // YAML nodes that are read, those behind aliases each time

	maxIncludedText = 4 << 20 // bytes of a file that is no YAML
)

// parse returns the root node of a file that holds exactly one document.
func parse(src []byte, at *source, words *Vocabulary) (*yaml.Node, *Error) {
	if err := checkText(src, at, maxSource); err != nil {
		return nil, err
	}
	loader, err := yaml.NewLoader(bytes.NewReader(src),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		return nil, at.errorAt(1, 1, err.Error(), "")
	}
	var document yaml.Node
	if err := loader.Load(&document); errors.Is(err, io.EOF) {
		return nil, at.errorAt(1, 1, words.Empty, words.EmptyHint)
	} else if err != nil {
		return nil, syntaxError(err, at, words)
	}
	var second yaml.Node
	if err := loader.Load(&second); err == nil {
		return nil, at.errorAt(max(second.Line, 1), max(second.Column, 1),
			"a second YAML document", words.SecondHint)
	} else if !errors.Is(err, io.EOF) {
		return nil, syntaxError(err, at, words)
	}
	if len(document.Content) == 0 || IsNull(document.Content[0]) {
		return nil, at.errorAt(1, 1, words.Empty, words.EmptyHint)
	}
	return document.Content[0], nil
}

// checkText refuses what YAML would refuse without saying where.
func checkText(src []byte, at *source, most int) *Error {
	if len(src) > most {
		return &Error{File: at.file, Line: 1, Column: 1,
			Message: fmt.Sprintf("the file has %d bytes, and may have %d", len(src), most)}
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
func syntaxError(err error, at *source, words *Vocabulary) *Error {
	load, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		return at.errorAt(1, 1, err.Error(), "")
	}
	if what := words.Foreign(at.lines); what != "" {
		return &Error{File: at.file, Line: 1, Column: 1, Message: what}
	}
	if cause := at.behindSyntax(load.Mark.Line, words); cause != nil {
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
