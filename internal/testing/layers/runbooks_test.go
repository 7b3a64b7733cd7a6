package layers

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/programs/cli"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

var (
	inlineCode = regexp.MustCompile("`([^`]+)`")
	toolCall   = regexp.MustCompile(`(?:^|[|&(\n] *)tallygate ([a-z-]+)((?: [^|&#\n]*)?)`)
	flagOf     = regexp.MustCompile(`(?:^| )(--[a-z-]+)`)
)

// What somebody types at night exists: each command in the runbooks is one of the tool's, and has the
// options that stand behind it; options that stand alone are those of some program.
func TestCommandsInRunbooksExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/runbooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(string(text), "\\\n", "")
	var pieces []string
	for _, f := range fence.FindAllStringSubmatch(page, -1) {
		pieces = append(pieces, f[2])
	}
	for _, code := range inlineCode.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		pieces = append(pieces, strings.Join(strings.Fields(code[1]), " "))
	}
	calls, all := 0, optionsOf(helpOfAll(t))
	for _, piece := range pieces {
		for _, call := range toolCall.FindAllStringSubmatch(piece, -1) {
			calls++
			options := optionsOfCommand(t, call[1])
			for _, option := range flagOf.FindAllStringSubmatch(call[2], -1) {
				if !slices.Contains(options, option[1]) {
					t.Errorf("tallygate %s has no %s: %s", call[1], option[1], piece)
				}
			}
		}
		if strings.HasPrefix(piece, "--") && !slices.Contains(all, strings.Fields(piece)[0]) {
			t.Errorf("no program has %s", piece)
		}
	}
	if calls < 20 {
		t.Errorf("%d commands in the runbooks", calls)
	}
}

// optionsOfCommand are those of a command of the tool; a command that is not there fails the test.
func optionsOfCommand(t *testing.T, name string) []string {
	t.Helper()
	if !slices.ContainsFunc(cli.Commands(), func(c cli.Command) bool { return c.Name == name }) {
		t.Errorf("there is no tallygate %s", name)
		return nil
	}
	var help strings.Builder
	cli.Main(testrun.Context(t), []string{name, "--help"}, strings.NewReader(""), &help, io.Discard, testrun.NoEnv)
	return optionsOf(help.String())
}
