package accesslog

import (
	"fmt"
	"io"

	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// Lines configures the reading of lines: the format, and the client's address among several.
type Lines struct {
	Format  Format
	Proxies *httplimit.Proxies // nil: of several addresses the last one is the client's
	Warn    func(text string)  // takes once what looks wrong with a log as a whole; nil: nobody
}

// Options are the command line's --format and --trusted-proxies, the same for every command that reads
// logs.
type Options struct {
	format  *string
	proxies *httplimit.Proxies
}

// Flags take options: *ops.Options and *flag.FlagSet do.
type Flags interface {
	String(name, value, usage string) *string
	Func(name, usage string, fn func(string) error)
}

// NewOptions adds the options to flags.
func NewOptions(flags Flags) *Options {
	o := &Options{format: flags.String("format", "", FormatUsage)}
	flags.Func("trusted-proxies", "`NETWORK,…` of your own proxies, such as 10.0.0.0/8: where a line has a list of addresses, the client's is the last that is none of these, as with the enforcer's option of this name", func(text string) (err error) {
		o.proxies, err = httplimit.ParseProxies(text)
		return err
	})
	return o
}

// Reader returns a Reader of in.
func (l Lines) Reader(in io.Reader) *Reader {
	r := NewReader(in, l.Format)
	r.parser.proxies, r.warn = l.Proxies, l.Warn
	if l.Warn != nil {
		r.decoder.Unread = Unread(l.Warn)
	}
	return r
}

// Lines returns what was asked for, after the options are parsed.
func (o *Options) Lines() (Lines, error) {
	f, err := ParseFormat(*o.format)
	if err != nil {
		return Lines{}, fmt.Errorf("--format: %w", err)
	}
	return Lines{Format: f, Proxies: o.proxies}, nil
}
