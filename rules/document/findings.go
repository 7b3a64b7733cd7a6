package document

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Findings collects the mistakes and warnings of a File.
type Findings struct {
	Rule string // the rule that is being read: its mistakes name it

	// Accept is for a file that an older program accepted: what has a meaning, and is refused
	// since it is nearly always a mistake, is Outdated and no mistake.
	Accept bool

	src      *source
	errs     Errors
	warned   Errors
	outdated Errors
	count    int // of errs, also of those that are too many to keep
}

// maxFindings bounds how many mistakes are kept, and how many warnings: one line may hold thousands.
const maxFindings = 1000

// keep adds a finding, unless there are too many.
func keep(list Errors, found ...*Error) Errors {
	return append(list, found[:max(min(len(found), maxFindings-len(list)), 0)]...)
}

// Fail reports a mistake at a node. hint says what to write instead, or is "".
func (f *Findings) Fail(n *yaml.Node, hint, format string, args ...any) {
	f.Report(f.At(n, hint, fmt.Sprintf(format, args...)))
}

// FailAt reports a mistake at a line and a column of the file that is being read, both from 1, columns in
// characters.
func (f *Findings) FailAt(line, column int, hint, format string, args ...any) {
	e := f.src.errorAt(line, column, fmt.Sprintf(format, args...), hint)
	e.Rule = f.Rule
	f.Report(e)
}

// Warn reports what is allowed but probably not meant.
func (f *Findings) Warn(n *yaml.Node, hint, format string, args ...any) {
	f.Doubt(f.At(n, hint, fmt.Sprintf(format, args...)))
}

// Report reports a mistake.
func (f *Findings) Report(e *Error) {
	f.count++
	f.errs = keep(f.errs, e)
}

// Doubt reports what is allowed but probably not meant.
func (f *Findings) Doubt(e *Error) { f.warned = keep(f.warned, e) }

// Refuse reports mistakes of which it is known what they mean: see Accept.
func (f *Findings) Refuse(mistakes ...*Error) (accepted bool) {
	if f.Accept {
		f.outdated = keep(f.outdated, mistakes...)
		return true
	}
	f.count += len(mistakes)
	f.errs = keep(f.errs, mistakes...)
	return len(mistakes) == 0
}

// At is a mistake at a node, which is not reported yet.
func (f *Findings) At(n *yaml.Node, hint, message string) *Error {
	e := f.src.errorAt(n.Line, n.Column, message, hint)
	e.Rule = f.Rule
	return e
}

// Inside is a mistake at a character of a scalar's text, which is not reported yet.
func (f *Findings) Inside(n *yaml.Node, at int, hint, message string) *Error {
	e := f.At(n, hint, message)
	if line, column, ok := f.src.inside(n, at); ok {
		e.Line, e.Column, e.SourceLine = line, column, f.src.quoted(line)
	}
	return e
}

// HasComment reports whether a comment stands on the line on which a scalar begins.
func (f *Findings) HasComment(n *yaml.Node) bool { return strings.Contains(f.src.line(n.Line), " #") }

// Mistakes counts the mistakes so far.
func (f *Findings) Mistakes() int { return f.count }

// Refused counts the mistakes so far, and the accepted ones that a file may not have.
func (f *Findings) Refused() int { return f.count + len(f.outdated) }

// Err is an Errors of every mistake so far, in the order of the file; nil when there is none.
func (f *Findings) Err() error {
	if len(f.errs) == 0 {
		return nil
	}
	return f.errs.sorted()
}

// Outdated lists the accepted ones, in the order of the file.
func (f *Findings) Outdated() Errors { return f.outdated.sorted() }

// Warnings lists the warnings, in the order of the file.
func (f *Findings) Warnings() []Warning {
	var out []Warning
	for _, w := range f.warned.sorted() {
		out = append(out, Warning(*w))
	}
	return out
}
