// Package ops is what the commands have in common: options from flags, environment and a
// file, connections, logs, health, metrics and a graceful stop.
package ops

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
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
}

// NewOptions makes the options of a command; usage is what --help says before the flags.
func NewOptions(name, usage string, out io.Writer, getenv func(string) string) *Options {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	o := &Options{FlagSet: fs, getenv: getenv}
	o.config = fs.String("config", "", "`FILE` in YAML with options by these names")
	o.help = func() {
		fmt.Fprintln(out, strings.TrimSpace(usage))
		fmt.Fprintln(out, "\nOptions (each also as TALLYGATE_NAME in the environment, or as name: value in the --config file):")
		fs.VisitAll(func(f *flag.Flag) {
			arg, help := flag.UnquoteUsage(f)
			fmt.Fprintf(out, "  --%s", f.Name)
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

// Parse reads args, then the environment and the file for what args don't give.
func (o *Options) Parse(args []string) error {
	if err := o.FlagSet.Parse(args); errors.Is(err, ErrHelp) {
		o.help()
		return err
	} else if err != nil {
		return &UsageError{fmt.Errorf("%w; --help tells what there is", err)}
	}
	given := map[string]bool{}
	o.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var errs []error
	o.VisitAll(func(f *flag.Flag) {
		env := EnvName(f.Name)
		v := o.getenv(env)
		if given[f.Name] || v == "" {
			return
		}
		given[f.Name] = true
		if err := f.Value.Set(v); err != nil {
			errs = append(errs, fmt.Errorf("%s=%q: %w", env, v, err))
		}
	})
	if *o.config != "" {
		errs = append(errs, o.file(*o.config, given))
	}
	if err := errors.Join(errs...); err != nil {
		return &UsageError{err}
	}
	return nil
}

// EnvName is the environment variable of an option.
func EnvName(option string) string {
	return "TALLYGATE_" + strings.ToUpper(strings.ReplaceAll(option, "-", "_"))
}

func (o *Options) file(path string, given map[string]bool) error {
	src, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the config: %w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(src, &doc); err != nil {
		return fmt.Errorf("read the config %s: %w", path, err)
	}
	if len(doc.Content) == 0 {
		return nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d:%d: the config is a list of name: value", path, root.Line, root.Column)
	}
	var errs []error
	for i := 0; i+1 < len(root.Content); i += 2 {
		k, v := root.Content[i], root.Content[i+1]
		if err := o.entry(k, v, given); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d:%d: %w", path, k.Line, k.Column, err))
		}
	}
	return errors.Join(errs...)
}

func (o *Options) entry(k, v *yaml.Node, given map[string]bool) error {
	name := strings.ReplaceAll(k.Value, "_", "-")
	f := o.Lookup(name)
	if f == nil || name == "config" {
		return fmt.Errorf("unknown option %q; there are %s", k.Value, strings.Join(o.names(), ", "))
	}
	text := v.Value
	switch v.Kind {
	case yaml.ScalarNode:
	case yaml.SequenceNode:
		items := make([]string, len(v.Content))
		for i, n := range v.Content {
			items[i] = n.Value
		}
		text = strings.Join(items, ",")
	default:
		return fmt.Errorf("option %q takes a value or a list of values", k.Value)
	}
	if given[name] {
		return nil
	}
	if err := f.Value.Set(text); err != nil {
		return fmt.Errorf("option %q: %w", k.Value, err)
	}
	return nil
}

func (o *Options) names() (names []string) {
	o.VisitAll(func(f *flag.Flag) {
		if f.Name != "config" {
			names = append(names, f.Name)
		}
	})
	return names
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

// Secret reads a secret from the environment variable, or from the file that an option
// names; never from a flag, which every user of the machine could read.
func (o *Options) Secret(env, path string) (string, error) {
	if path == "" {
		return o.getenv(env), nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read a secret: %w", err)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}
