// Package document reads YAML files that people write, and tells their mistakes: all of them, each
// with its place, its line, a caret, and what was probably meant.
package document

import "go.yaml.in/yaml/v4"

// File is a YAML file that is being read: its text, and the mistakes so far.
type File struct {
	Findings

	Name string // stands in its errors
	Root *yaml.Node

	// Stop is asked now and then while the file is read; its error ends that. Nil: it is read to its end.
	Stop func() error

	words *Vocabulary
	nodes int                 // YAML nodes read so far
	ended error               // what Stop said
	glued map[*yaml.Node]bool // mappings with a field whose colon has no blank behind it
}

// New returns a File, nothing of which is read yet.
func New(name string, src []byte, words *Vocabulary) *File {
	return &File{Findings: Findings{src: newSource(name, src)}, Name: name, words: words, glued: map[*yaml.Node]bool{}}
}

// Parse reads the File's YAML, one document. Nothing else can be read of a File for which it is
// false.
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

// Include reads another File in between: mistakes of its nodes have its place. It is false when
// there is no YAML in it.
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

// IncludeText reads a file in between that is no YAML, such as a list with a line for each entry: what
// FailAt reports has its place. lines are without their ends. It is false when the file is no text.
func (f *File) IncludeText(name string, src []byte, read func(lines []string)) bool {
	main := f.src
	f.src = newSource(name, src)
	defer func() { f.src = main }()
	if bad := checkText(src, f.src, maxIncludedText); bad != nil {
		bad.Rule = f.Rule
		f.Report(bad)
		return false
	}
	read(f.src.lines)
	return true
}

// Ended is the error by which Stop ended the reading; nil if it did not. What was read until then is not all.
func (f *File) Ended() error {
	if f.Stop != nil && f.ended == nil {
		f.ended = f.Stop()
	}
	return f.ended
}

// stopEvery is after how many nodes Stop is asked.
const stopEvery = 64

// resolve follows an alias, and counts what is read: nil when it is too much, or was stopped.
func (f *File) resolve(n *yaml.Node) *yaml.Node {
	if f.nodes++; f.nodes%stopEvery == 0 && f.Ended() != nil {
		return nil
	}
	if f.ended != nil {
		return nil
	}
	if f.nodes > maxNodes {
		if f.nodes == maxNodes+1 {
			f.Fail(n, "use fewer aliases, or several rule sets", "the file is too large with its aliases written out")
		}
		return nil
	}
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}
