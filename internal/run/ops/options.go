// Package ops serves the commands: options from flags, environment and a file, connections, logs, health, metrics and
// a graceful stop.
package ops

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
)

// ErrHelp says that the help was asked for, and printed.
var ErrHelp = flag.ErrHelp

// Options are a command's options. Each is, in this order: a flag, the environment variable
// TALLYGATE_NAME, an entry of the file given by --config, or its default.
type Options struct {
	*flag.FlagSet
	config *string
	getenv func(string) string
	help   func()
	args   []string
	log    atomic.Pointer[slog.Logger]

	settings settings
}

// NewOptions makes the options of a command; usage is what --help says before the flags, on
// out.
func NewOptions(name, usage string, out io.Writer, getenv func(string) string) *Options {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	o := &Options{FlagSet: fs, getenv: getenv}
	o.config = fs.String("config", "", "`FILE` in YAML with these options by name")
	o.help = func() {
		if d, ok := out.(Describer); ok {
			d.Describe(o.describe())
			return
		}
		fmt.Fprintln(out, strings.TrimSpace(usage))
		fmt.Fprintln(out, "\nOptions (each also as TALLYGATE_NAME in the environment, or as name: value in the --config file):")
		fs.VisitAll(func(f *flag.Flag) {
			arg, help := flag.UnquoteUsage(f)
			fmt.Fprintf(out, "  %s", Dashed(f.Name))
			if arg != "" {
				fmt.Fprintf(out, " %s", arg)
			}
			fmt.Fprintf(out, "\n        %s", help)
			if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" {
				fmt.Fprintf(out, " (default %s)", f.DefValue)
			}
			fmt.Fprintln(out)
		})
	}
	return o
}

// Getenv is the environment that the options are read from, for variables that are no options.
func (o *Options) Getenv(name string) string { return o.getenv(name) }

// Dashed is an option as people write it: one dash for one letter.
func Dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// Parse reads args, then the environment and the file for what args don't give.
func (o *Options) Parse(args []string) error {
	if err := o.parseMixed(args); errors.Is(err, ErrHelp) {
		o.help()
		return err
	} else if err != nil {
		return &UsageError{withHelp(o.told(err))}
	}
	given := map[string]bool{}
	o.Visit(func(f *flag.Flag) {
		given[f.Name] = true
		o.settings.note(f.Name, fromFlag)
	})
	var errs []error
	o.VisitAll(func(f *flag.Flag) {
		env := EnvName(f.Name)
		v := o.getenv(env)
		if given[f.Name] || v == "" {
			return
		}
		given[f.Name] = true
		o.settings.note(f.Name, fromEnvironment)
		if err := f.Value.Set(v); err != nil {
			errs = append(errs, fmt.Errorf("%s=%q: %w", env, v, o.wants(f.Name, v, err)))
		}
	})
	if *o.config != "" {
		errs = append(errs, o.readFile(*o.config, given))
	}
	if o.getenv(apart) != "" {
		o.VisitAll(func(f *flag.Flag) {
			if !given[f.Name] {
				errs = append(errs, moveApart(f))
			}
		})
	}
	if err := errors.Join(errs...); err != nil {
		return &UsageError{err}
	}
	return nil
}

// ParseOnly is Parse for a command that takes options only.
func (o *Options) ParseOnly(args []string) error {
	if err := o.Parse(args); err != nil {
		return err
	}
	if len(o.args) > 0 {
		return &UsageError{fmt.Errorf("%q is not an option, and %s takes only options; --help lists them", o.args[0], o.Name())}
	}
	return nil
}

// parseMixed allows options between and behind the arguments too, which package flag does
// not. Behind -- all are arguments.
func (o *Options) parseMixed(args []string) error {
	o.args = nil
	for {
		if err := o.FlagSet.Parse(args); err != nil {
			return err
		}
		rest := o.FlagSet.Args()
		if n := len(args) - len(rest); len(rest) == 0 || n > 0 && args[n-1] == "--" {
			o.args = append(o.args, rest...)
			return nil
		}
		o.args = append(o.args, rest[0])
		args = rest[1:]
	}
}

// Args are the arguments that are no options.
func (o *Options) Args() []string { return o.args }

// NArg counts the Args.
func (o *Options) NArg() int { return len(o.args) }

// Arg is the i-th of Args, "" when there are fewer.
func (o *Options) Arg(i int) string {
	if i < 0 || i >= len(o.args) {
		return ""
	}
	return o.args[i]
}

// EnvName is the environment variable of an option.
func EnvName(option string) string {
	return "TALLYGATE_" + strings.ToUpper(strings.ReplaceAll(option, "-", "_"))
}

// List is an option that is a list, separated by commas.
type List []string

// List adds a list option with a default.
func (o *Options) List(name string, def []string, help string) *List {
	l := List(def)
	o.Var(&l, name, help)
	return &l
}

func (l *List) String() string { return strings.Join(*l, ",") }

// Set replaces the whole list.
func (l *List) Set(s string) error {
	parts := strings.Split(s, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" })
	if len(parts) == 0 {
		return errors.New("an empty list")
	}
	*l = parts
	return nil
}

// Table is an option that is a table of names and values, written NAME=VALUE,…
type Table map[string]string

// Table adds a table option, empty by default.
func (o *Options) Table(name, help string) Table {
	t := Table{}
	o.Var(t, name, help)
	return t
}

func (t Table) String() string {
	var items []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		items = append(items, name+"="+t[name])
	}
	return strings.Join(items, ",")
}

// Set replaces the whole table.
func (t Table) Set(s string) error {
	clear(t)
	for item := range strings.SplitSeq(s, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(item), "=")
		if !ok || name == "" {
			return fmt.Errorf("%q is not NAME=VALUE", item)
		}
		t[name] = value
	}
	return nil
}

// Secret reads a secret from the environment variable, or from the file that an option
// names; never from a flag, which every user of the machine could read.
func (o *Options) Secret(env, path string) (string, error) {
	if path == "" {
		secret := o.getenv(env)
		if secret != "" {
			o.settings.secret(env, fromEnvironment)
		}
		return secret, nil
	}
	o.settings.secret(env, fromFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read a secret: %w", err)
	}
	secret := strings.TrimRight(string(b), "\r\n")
	if secret == "" {
		return "", fmt.Errorf("read a secret: %s is empty", path)
	}
	return secret, nil
}

// SecretNow is Secret for who goes by what the file holds at each use: now returns that or, while it cannot be
// read, what it held last. The log says so.
func (o *Options) SecretNow(env, path string) (now func() string, err error) {
	first, err := o.Secret(env, path)
	if err != nil || path == "" {
		return func() string { return first }, err
	}
	var last atomic.Pointer[string]
	last.Store(&first)
	state := &complaint{log: o.Logger}
	return func() string {
		secret, err := o.Secret(env, path)
		if state.note(err); err == nil {
			last.Store(&secret)
		}
		return *last.Load()
	}, nil
}
