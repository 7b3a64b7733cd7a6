package layers

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/programs/cli"
	"github.com/tallygate/tallygate/internal/programs/enforcer"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// documented is an option as help and the reference have it.
type documented struct{ name, arg, meaning, preset string }

var inHelp = regexp.MustCompile(`(?m)^  (--?[a-z-]+)(?: (\S+))?\n +(.+?)(?: \(default ([^()]+)\))?$`)

// helps are the options of each program and command, by its name.
func helps(t *testing.T) map[string][]documented {
	t.Helper()
	options := map[string][]documented{}
	read := func(name string, run func(out io.Writer)) {
		var help bytes.Buffer
		run(&help)
		for _, m := range inHelp.FindAllStringSubmatch(help.String(), -1) {
			if m[1] == "--by" {
				m[4] = "you, at this machine"
			}
			options[name] = append(options[name], documented{m[1], m[2], m[3], m[4]})
		}
	}
	read("aggregator", func(out io.Writer) {
		aggregator.Command(testrun.Context(t), []string{"--help"}, out, out, testrun.NoEnv)
	})
	read("enforcer", func(out io.Writer) {
		enforcer.Command(testrun.Context(t), []string{"--help"}, out, out, testrun.NoEnv)
	})
	for _, c := range cli.Commands() {
		read(c.Name, func(out io.Writer) {
			cli.Main(testrun.Context(t), []string{c.Name, "--help"}, strings.NewReader(""), out, io.Discard, testrun.NoEnv)
		})
	}
	return options
}

// sectionOf names the section of the reference about a program: overrides of rules share one.
func sectionOf(program string) string {
	if slices.Contains([]string{"unblock", "reset", "exempt", "erase"}, program) {
		return "block"
	}
	if program == "grant" {
		return "limit"
	}
	return program
}

// The reference's options are those of the programs' help. Rows that three sections and more would have stand in
// one of their own, in groups by whose they are.
func TestTheReferenceHasTheOptionsOfHelp(t *testing.T) {
	programs := map[documented][]string{}
	for name, options := range helps(t) {
		for _, o := range options {
			programs[o] = append(programs[o], name)
		}
	}
	if len(programs) < 100 {
		t.Fatalf("%d options in the help of all programs", len(programs))
	}
	groups := map[string][]documented{} // by a section, or by the programs that share them
	for o, names := range programs {
		slices.Sort(names)
		sections := map[string][]string{}
		for _, name := range names {
			sections[sectionOf(name)] = append(sections[sectionOf(name)], name)
		}
		if len(sections) > 2 {
			group := "`" + strings.Join(names, "`, `") + "`"
			groups[group] = append(groups[group], o)
			continue
		}
		for section, of := range sections {
			own := o
			if section == "block" && len(of) < 5 || section == "limit" && len(of) < 2 {
				own.meaning += " (" + strings.Join(of, ", ") + ")"
			}
			groups[section] = append(groups[section], own)
		}
	}
	page := filepath.Join(root, "docs/reference/commands.md")
	write := func(name, text string) {
		testrun.Section(t, page, "<!-- options of "+name+" -->\n", "<!-- /options -->\n", text)
	}
	var several strings.Builder
	byWidth := func(a, b string) int {
		return cmp.Or(strings.Count(b, ",")-strings.Count(a, ","), strings.Compare(a, b))
	}
	for _, group := range slices.SortedFunc(maps.Keys(groups), byWidth) {
		if strings.HasPrefix(group, "`") {
			fmt.Fprintf(&several, "\nOf %s:\n%s", group, optionTable(groups[group]))
		} else {
			write(group, optionTable(groups[group])+"\n")
		}
	}
	write("several programs: go test ./internal/testing/layers -run OfHelp -rewrite", several.String()+"\n")
}

func optionTable(options []documented) string {
	slices.SortFunc(options, func(a, b documented) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.meaning, b.meaning))
	})
	var b strings.Builder
	b.WriteString("\n| option | default | meaning |\n|---|---|---|\n")
	for _, o := range options {
		if o.preset != "" && !strings.Contains(o.preset, " ") {
			o.preset = "`" + o.preset + "`"
		}
		row := fmt.Sprintf("`%s` | %s | %s", strings.TrimSpace(o.name+" "+o.arg), o.preset, o.meaning)
		fmt.Fprintf(&b, "| %s |\n", strings.ReplaceAll(strings.ReplaceAll(row, " | ", "\x00"), "|", `\|`))
	}
	return strings.ReplaceAll(b.String(), "\x00", " | ")
}
