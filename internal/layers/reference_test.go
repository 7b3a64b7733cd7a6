package layers

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/aggregator"
	"github.com/tallygate/tallygate/internal/cli"
	"github.com/tallygate/tallygate/internal/enforcer"
)

var option = regexp.MustCompile(`(?m)^  (--[a-z-]+)`)

// Every option that --help tells of is in the reference.
func TestEveryOptionIsInTheReference(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	none := func(string) string { return "" }
	var help bytes.Buffer
	aggregator.Command(t.Context(), []string{"--help"}, &help, &help, none)
	enforcer.Command(t.Context(), []string{"--help"}, &help, &help, none)
	for _, command := range []string{"dev", "block", "unblock", "reset", "exempt", "forget", "check", "test", "replay", "explain", "blocks", "audit", "dead-letters", "hot-keys", "doctor", "emit"} {
		cli.Main(t.Context(), []string{command, "--help"}, strings.NewReader(""), &help, io.Discard, none)
	}
	options := option.FindAllStringSubmatch(help.String(), -1)
	if len(options) < 50 {
		t.Fatalf("%d options in the help of all commands", len(options))
	}
	for _, o := range options {
		if !bytes.Contains(page, []byte("| `"+o[1]+"`")) && !bytes.Contains(page, []byte("| `"+o[1]+" ")) {
			t.Errorf("%s is not in docs/reference.md", o[1])
		}
	}
}
