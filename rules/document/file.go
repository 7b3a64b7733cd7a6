// Package document reads YAML files that people write, and tells their mistakes: all of them, each with its
// place, its line, a caret, and what was probably meant.
package document

import (
	"fmt"

	"go.yaml.in/yaml/v4"
)

// File is a YAML file that is being read: its text, and the mistakes so far.
type File struct {
	Name string // stands in its errors
	Root *yaml.Node
	Rule string // the rule that is being read: its mistakes name it

	// Accept is for a file that an older program accepted: what has a meaning, and is refused since it is
	// nearly always a mistake, is Outdated and no mistake.
	Accept bool

	words    *Vocabulary
	src      *source
	errs     Errors
	warned   Errors
	outdated Errors
	nodes    int                 // YAML nodes read so far
	glued    map[*yaml.Node]bool // mappings with a field whose colon has no blank behind it
}

// New returns a File, nothing of which is read yet.
func New(name string, src []byte, words *Vocabulary) *File {
	return &File{Name: name, words: words, src: newSource(name, src), glued: map[*yaml.Node]bool{}}
}

// Parse reads the File's YAML, one document. Nothing else can be read of a File for which it is false.
func (f *File) Parse(src []byte) bool {
	root, bad := parse(src, f.src, f.words)
	if bad != nil {
		f.Report(bad)
		return false
	}
	f.Root = f.resolve(root)
	return true
}

// FindInvisible reports characters that nobody sees, and, unless they are accepted, reads on as if
// they were not there.
func (f *File) FindInvisible() { f.Refuse(f.src.invisible(f.Root, !f.Accept)...) }

// Include reads another File in between: mistakes of its nodes have its place. It is false when there is
// no YAML in it.
func (f *File) Include(name string, src []byte, read func(root *yaml.Node)) bool {
	main := f.src
	f.src = newSource(name, src)
	defer func() { f.src = main }()
	root, bad := parse(src, f.src, f.words)
	if bad != nil {
		f.Report(bad)
		return false
	}
	read(root)
	return true
}

// Fail reports a mistake at a node. hint says what to write instead, or is "".
func (f *File) Fail(n *yaml.Node, hint, format string, args ...any) {
	f.Report(f.At(n, hint, fmt.Sprintf(format, args...)))
}

// Warn reports what is allowed but probably not meant.
func (f *File) Warn(n *yaml.Node, hint, format string, args ...any) {
	f.Doubt(f.At(n, hint, fmt.Sprintf(format, args...)))
}

// Report reports a mistake.
func (f *File) Report(e *Error) { f.errs = append(f.errs, e) }

// Doubt reports what is allowed but probably not meant.
func (f *File) Doubt(e *Error) { f.warned = append(f.warned, e) }

// Refuse reports mistakes of which it is known what they mean: see Accept.
func (f *File) Refuse(mistakes ...*Error) (accepted bool) {
	if f.Accept {
		f.outdated = append(f.outdated, mistakes...)
		return true
	}
	f.errs = append(f.errs, mistakes...)
	return len(mistakes) == 0
}

// At is a mistake at a node, which is not reported yet.
func (f *File) At(n *yaml.Node, hint, message string) *Error {
	e := f.src.errorAt(n.Line, n.Column, message, hint)
	e.Rule = f.Rule
	return e
}

// Mistakes is how many were reported so far.
func (f *File) Mistakes() int { return len(f.errs) }

// Err is an Errors of every mistake so far, in the order of the file; nil when there is none.
func (f *File) Err() error {
	if len(f.errs) == 0 {
		return nil
	}
	return f.errs.sorted()
}

// Outdated is what was accepted, in the order of the file.
func (f *File) Outdated() Errors { return f.outdated.sorted() }

// Warnings is what was warned of, in the order of the file.
func (f *File) Warnings() []Warning {
	var out []Warning
	for _, w := range f.warned.sorted() {
		out = append(out, Warning(*w))
	}
	return out
}
