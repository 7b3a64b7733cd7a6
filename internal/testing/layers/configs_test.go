package layers

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/programs/cli"
	"github.com/tallygate/tallygate/internal/programs/enforcer"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// configs are the pages' config files: their first line is a comment that names one.
var configs = regexp.MustCompile("(?s)```yaml\n(# [^\n]*(?:--config|/etc/tallygate/tallygate\\.yaml).*?)```")

// Each config file of the pages can be given to each program, as they say: all entries are options of some program.
func TestConfigFilesOfThePagesAreUnderstood(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := configs.FindAllStringSubmatch(string(text), -1)
	for _, block := range blocks {
		path := filepath.Join(t.TempDir(), "config.yaml")
		// A mistake, so that nothing starts: a program tells all that it finds.
		if err := os.WriteFile(path, []byte(block[1]+"\nno-such: option\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"aggregator", "enforcer", "console", "notify", "doctor", "blocks", "explain"} {
			said := withConfig(t, command, path)
			if strings.Count(said, path+":") != 1 || !strings.Contains(said, `unknown option "no-such"`) {
				t.Errorf("%s: %s", command, said)
			}
		}
	}
	if len(blocks) < 4 {
		t.Errorf("only %d config files are on the page", len(blocks))
	}
}

// withConfig returns a program's errors about a config file.
func withConfig(t *testing.T, command, path string) string {
	t.Helper()
	none := testrun.NoEnv
	var said bytes.Buffer
	args := []string{"--config", path}
	switch command {
	case "aggregator":
		aggregator.Command(testrun.Context(t), args, &said, &said, none)
	case "enforcer":
		enforcer.Command(testrun.Context(t), args, &said, &said, none)
	default:
		cli.Main(testrun.Context(t), append([]string{command}, args...), strings.NewReader(""), &said, &said, none)
	}
	return said.String()
}
