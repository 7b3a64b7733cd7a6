package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/programs/cli"
	"github.com/tallygate/tallygate/internal/programs/enforcer"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// What each program and command says of itself, and with which status it ends: testdata/help.txt. A question is a
// command line.
func TestHelp(t *testing.T) {
	type program func(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int
	programs := map[string]program{
		"aggregator": aggregator.Command,
		"enforcer":   enforcer.Command,
		"tallygate": func(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
			return cli.Main(ctx, args, strings.NewReader(""), stdout, stderr, getenv)
		},
	}
	asked := map[string]bool{}
	testrun.Script(t, "testdata/help.txt", func(question []string) string {
		words := strings.Fields(question[0])
		asked[question[0]] = true
		var stdout, stderr bytes.Buffer
		status := programs[words[0]](testrun.Context(t), words[1:], &stdout, &stderr, testrun.NoEnv)
		answer := fmt.Sprintf("status %d\n%s", status, &stdout)
		if stderr.Len() > 0 {
			answer += "stderr:\n" + stderr.String()
		}
		return answer
	})
	for name := range programs {
		if !asked[name+" --help"] && !asked[name+" help"] {
			t.Errorf("testdata/help.txt does not have %s", name)
		}
	}
	for _, c := range cli.Commands() {
		if line := "tallygate " + c.Name + " --help"; !asked[line] && c.Name != "version" {
			t.Errorf("testdata/help.txt does not have %s", line)
		}
	}
}
