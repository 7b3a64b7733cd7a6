package ops

import (
	"flag"
	"io"
)

// Described is one option, as --help tells of it.
type Described struct {
	Name  string // as people write it, such as --follow
	Takes string // what stands behind it, such as FILE; "" for a switch
	About string
}

// Describer is an output that a command's help is not written to as text: it gets the options. Those
// of shell completions are read so, with no text to parse.
type Describer interface {
	io.Writer
	Describe(options []Described)
}

// describe returns all options, sorted.
func (o *Options) describe() (all []Described) {
	o.VisitAll(func(f *flag.Flag) {
		takes, about := flag.UnquoteUsage(f)
		all = append(all, Described{Dashed(f.Name), takes, about})
	})
	return all
}
