package ops

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/rules/didyoumean"
)

// programs have sections of their own in a config file, for what only one of them is to be given. So do the
// commands of tallygate that run or ask for long with users of their own; "tallygate" is for all its commands.
var programs = []string{"aggregator", "enforcer", "tallygate", "console", "notify", "doctor"}

// readFile takes options that are not given yet from a config file, and returns every mistake in
// it. One file serves all programs: options of others are skipped. A command's own section takes precedence
// over that of its program, and this one over entries outside of sections. The doctor, whom an aggregator's options
// are for, takes those of the aggregator's section, too.
func (o *Options) readFile(path string, given map[string]bool) error {
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
	program, command, _ := strings.Cut(o.Name(), " ")
	var errs []error
	var common, ours, examined, others []*yaml.Node
	sections := map[string]int{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		k, v := root.Content[i], root.Content[i+1]
		switch {
		case !slices.Contains(programs, k.Value), v.Kind != yaml.MappingNode && o.isOption(k.Value, v):
			common = append(common, k, v)
		case v.Kind != yaml.MappingNode:
			errs = append(errs, fmt.Errorf("%s:%d:%d: %q is a program's section: options by name", path, k.Line, k.Column, k.Value))
		case sections[k.Value] > 0:
			errs = append(errs, fmt.Errorf("%s:%d:%d: the section %q is in line %d already", path, k.Line, k.Column, k.Value, sections[k.Value]))
		default:
			sections[k.Value] = k.Line
			switch {
			case k.Value == command:
				errs = append(errs, o.setEntries(path, v.Content, given, true))
			case k.Value == program:
				ours = v.Content
			case k.Value == "aggregator" && command == "doctor":
				examined = v.Content
			default:
				others = append(others, v)
			}
		}
	}
	errs = append(errs, o.setEntries(path, ours, given, true), o.setEntries(path, examined, given, true))
	for _, v := range others {
		errs = append(errs, o.setEntries(path, v.Content, given, false))
	}
	return errors.Join(append(errs, o.setEntries(path, common, given, true))...)
}

// isOption reports whether an entry with the name of a section is meant as the option of that name: an
// aggregator's address, or the file of tallygate notify. What is empty is a section whose lines are comments.
func (o *Options) isOption(name string, v *yaml.Node) bool {
	_, ok := entryText(v)
	return ok && (o.Lookup(name) != nil || KnownOption(name))
}

// setEntries sets the options of a section, if it is this program's, or only looks whether some
// program has them.
func (o *Options) setEntries(path string, entries []*yaml.Node, given map[string]bool, ours bool) error {
	var errs []error
	seen := map[string]int{}
	for i := 0; i+1 < len(entries); i += 2 {
		k, v := entries[i], entries[i+1]
		name := optionName(k.Value)
		var err error
		switch line, again := seen[name]; {
		case again:
			err = fmt.Errorf("option %q is in line %d already", k.Value, line)
		case (!ours || o.Lookup(name) == nil) && KnownOption(name):
		default:
			err = o.setEntry(k.Value, v, given)
		}
		seen[name] = k.Line
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d:%d: %w", path, k.Line, k.Column, err))
		}
	}
	if ours {
		for name := range seen {
			given[name] = true
		}
	}
	return errors.Join(errs...)
}

// optionName lets a file write max_staleness for max-staleness.
func optionName(key string) string { return strings.ReplaceAll(key, "_", "-") }

func (o *Options) setEntry(key string, v *yaml.Node, given map[string]bool) error {
	name := optionName(key)
	f := o.Lookup(name)
	if f == nil || name == "config" {
		if guess := didyoumean.Hint(key, o.names()); guess != "" {
			return fmt.Errorf("unknown option %q%s", key, guess)
		}
		return fmt.Errorf("unknown option %q; there are %s", key, strings.Join(o.names(), ", "))
	}
	takes, text, ok := "a value or a list of values", "", false
	if _, table := f.Value.(Table); table {
		takes = "a table of names and values"
		text, ok = tableText(v)
	} else {
		text, ok = entryText(v)
	}
	if !ok {
		return fmt.Errorf("option %q takes %s", key, takes)
	}
	if given[name] {
		return nil
	}
	o.settings.note(name, fromFile)
	if err := f.Value.Set(text); err != nil {
		return fmt.Errorf("option %q: %q: %w", key, text, o.wants(name, text, err))
	}
	return nil
}

// entryText is an entry's value as a flag would have it.
func entryText(v *yaml.Node) (text string, ok bool) {
	if v.Kind != yaml.SequenceNode {
		return v.Value, v.Kind == yaml.ScalarNode && v.ShortTag() != "!!null"
	}
	items := make([]string, len(v.Content))
	for i, n := range v.Content {
		if items[i], ok = entryText(n); !ok || n.Kind != yaml.ScalarNode {
			return "", false
		}
	}
	return strings.Join(items, ","), true
}

// tableText is a table as a flag would have it.
func tableText(v *yaml.Node) (text string, ok bool) {
	if v.Kind != yaml.MappingNode || len(v.Content) == 0 {
		return "", false
	}
	var items []string
	for i := 0; i+1 < len(v.Content); i += 2 {
		name, value := v.Content[i], v.Content[i+1]
		if name.Kind != yaml.ScalarNode || value.Kind != yaml.ScalarNode || value.ShortTag() == "!!null" {
			return "", false
		}
		items = append(items, name.Value+"="+value.Value)
	}
	return strings.Join(items, ","), true
}

func (o *Options) names() (names []string) {
	o.VisitAll(func(f *flag.Flag) {
		if f.Name != "config" {
			names = append(names, f.Name)
		}
	})
	return names
}
