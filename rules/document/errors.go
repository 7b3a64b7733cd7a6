package document

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/rivo/uniseg"
)

// Error is one mistake in a rule file, written for the person who has to correct it.
type Error struct {
	File       string `json:"file"`
	Line       int    `json:"line"`                  // from 1; 0 when the mistake has no place in the file
	Column     int    `json:"column"`                // from 1, in characters
	Rule       string `json:"rule,omitempty"`        // the rule it is in; "" outside of rules
	Message    string `json:"message"`               // what is wrong
	Hint       string `json:"hint,omitempty"`        // what to write instead; "" when the message says it all
	SourceLine string `json:"source_line,omitempty"` // the line as it is in the file
}

// Error renders the mistake over several lines: its place and message, the line itself, a
// caret under the column, and the hint.
func (e *Error) Error() string { return e.render("") }

func (e *Error) render(severity string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: %s%s", e.File, e.Line, e.Column, severity, e.Message)
	if strings.TrimSpace(e.SourceLine) != "" {
		line, caret := excerpt(e.SourceLine, e.Column)
		fmt.Fprintf(&b, "\n    %s\n    %s^", line, caret)
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, "\n    hint: %s", e.Hint)
	}
	return b.String()
}

// Errors is every mistake of one file, in the order of the file.
type Errors []*Error

// maxRendered bounds what Errors.Error prints: a file of another kind would fill the screen.
const maxRendered = 100

// Error renders the mistakes one below the other, the first hundred of them.
func (es Errors) Error() string {
	var b strings.Builder
	for i, e := range es {
		if i == maxRendered {
			fmt.Fprintf(&b, "\nand %d more", len(es)-maxRendered)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.Error())
	}
	return b.String()
}

// Unwrap lets errors.Is and errors.As look at each mistake.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// sorted returns the mistakes in the order of the file, each once: what several rules share,
// such as an aliased node, is checked for each of them.
func (es Errors) sorted() Errors {
	slices.SortStableFunc(es, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.CompactFunc(es, func(a, b *Error) bool {
		return a.File == b.File && a.Line == b.Line && a.Column == b.Column && a.Message == b.Message
	})
}

// Warning is something in a rule file that is allowed and probably not what was meant.
type Warning Error

// String renders the warning as Error.Error does.
func (w *Warning) String() string { return (*Error)(w).render("warning: ") }

// excerpt returns what to print of a line, without control characters and cut around the
// column when it is long, and the blanks that put a caret under the column: as wide as the
// text before it, with its tabs.
func excerpt(line string, column int) (shown, blanks string) {
	const before, after = 100, 60
	text := []rune(strings.Map(printable, line))
	at := min(max(column-1, 0), len(text))
	from, to := 0, len(text)
	if at > before {
		from = at - before
	}
	if to-at > after && to > before+after {
		to = at + after
	}
	shown = string(text[from:to])
	if from > 0 {
		shown = "…" + shown
	}
	if to < len(text) {
		shown += "…"
	}
	var b strings.Builder
	if from > 0 {
		b.WriteByte(' ')
	}
	rest := string(text[from:at])
	for {
		part, tail, tab := strings.Cut(rest, "\t")
		b.WriteString(strings.Repeat(" ", uniseg.StringWidth(part)))
		if !tab {
			return shown, b.String()
		}
		b.WriteByte('\t')
		rest = tail
	}
}

func printable(r rune) rune {
	if r != '\t' && unicode.IsControl(r) {
		return unicode.ReplacementChar
	}
	return r
}
