package layers

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/programs/cli"
	"github.com/tallygate/tallygate/internal/programs/enforcer"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/rules"
)

var option = regexp.MustCompile(`(?m)^  (--[a-z-]+)`)

// optionsOf are those that help tells of, sorted.
func optionsOf(help string) (names []string) {
	for _, o := range option.FindAllStringSubmatch(help, -1) {
		names = append(names, o[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// helpOfPrograms is that of those that run all the time, and of the doctor, who gets the same file; helpOfAll has
// all commands.
func helpOfPrograms(t *testing.T) string {
	t.Helper()
	none := testrun.NoEnv
	var help bytes.Buffer
	aggregator.Command(testrun.Context(t), []string{"--help"}, &help, &help, none)
	enforcer.Command(testrun.Context(t), []string{"--help"}, &help, &help, none)
	for _, command := range []string{"console", "notify", "doctor"} {
		cli.Main(testrun.Context(t), []string{command, "--help"}, strings.NewReader(""), &help, io.Discard, none)
	}
	return help.String()
}

func helpOfAll(t *testing.T) string {
	t.Helper()
	var help strings.Builder
	for _, command := range cli.Commands() {
		cli.Main(testrun.Context(t), []string{command.Name, "--help"}, strings.NewReader(""), &help, io.Discard, testrun.NoEnv)
	}
	return helpOfPrograms(t) + help.String()
}

// The reference's list of commands is that of the tool's table: each row links the section about it.
func TestTheReferenceListsEveryCommand(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/reference/commands.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := regexp.MustCompile(`(?m)^## (tallygate .+)$`).FindAllStringSubmatch(string(page), -1)
	var list strings.Builder
	for _, c := range cli.Commands() {
		anchor := ""
		for _, s := range sections {
			if words := strings.FieldsFunc(s[1], func(r rune) bool { return r == ' ' || r == ',' }); slices.Contains(words, c.Name) {
				anchor = anchorOf(s[1])
			}
		}
		if anchor == "" {
			t.Fatalf("add a section to docs/reference/commands.md, ## tallygate %s; -rewrite then writes the list of commands", c.Name)
		}
		text := strings.ReplaceAll(strings.TrimSpace("tallygate "+c.Name+" "+c.Args), "|", `\|`)
		fmt.Fprintf(&list, "| [`%s`](#%s) | %s |\n", text, anchor, c.Summary)
	}
	testrun.Section(t, filepath.Join(root, "docs/reference/commands.md"), "<!-- commands -->\n", "<!-- /commands -->\n",
		"\n| command | what it does |\n|---|---|\n"+list.String()+"\n")
}

// The reference says what each field of an explanation means.
func TestTheReferenceExplainsExplanations(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/reference/aggregator.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## GET /v1/explain\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var rows strings.Builder // the first cell of each row
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(section, -1) {
		rows.WriteString(row[1] + "\n")
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[rules.Explanation]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !strings.Contains(rows.String(), "`"+name+"`") {
			t.Errorf("docs/reference/aggregator.md, GET /v1/explain: add a row for `%s`", name)
		}
	}
}

// One config file serves all programs, so that each knows what another may find there. Options of single
// commands are not among them: there a slip would be passed over.
func TestConfigFilesMayHaveOptionsOfAllPrograms(t *testing.T) {
	var known strings.Builder
	for _, o := range optionsOf(helpOfPrograms(t)) {
		if o != "--config" { // no file names one
			known.WriteString(strings.TrimPrefix(o, "--") + "\n")
		}
	}
	testrun.Golden(t, filepath.Join(root, "internal/run/ops/options.txt"), known.String())
}

// No option takes a secret itself: every user of a machine sees the flags of all programs.
func TestNoFlagIsASecret(t *testing.T) {
	files := 0
	for line := range strings.Lines(helpOfAll(t)) {
		if name, ok := strings.CutPrefix(line, "  --"); ok && strings.Contains(name, "password") {
			if files++; !strings.Contains(name, "-file FILE") {
				t.Errorf("an option for a password: %s", line)
			}
		}
	}
	if files == 0 {
		t.Error("no option names a file with a password")
	}
}
