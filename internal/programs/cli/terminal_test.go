package cli_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/tallygate/tallygate/internal/programs/cli"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// hostile is a name that a client, a member or a server may give itself.
const hostile = "\x1b]0;x\a\u009b31m\u202e\r"

func draws(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsGraphic(r) })
}

// Whatever a command is, what it echoes draws nothing on a terminal.
func TestNoCommandDrawsForeignText(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // none waits for servers
	for _, c := range cli.Commands() {
		for _, args := range [][]string{{"--" + hostile}, {"--config", hostile}} {
			var out bytes.Buffer
			cli.Main(ctx, append([]string{c.Name}, args...), strings.NewReader(""), &out, &out, testrun.NoEnv)
			if draws(out.String()) {
				t.Errorf("%s %q: %q", c.Name, args, out.String())
			}
		}
	}
	var out bytes.Buffer
	if cli.Main(ctx, []string{hostile}, strings.NewReader(""), &out, &out, testrun.NoEnv); draws(out.String()) {
		t.Errorf("%q", out.String())
	}
}

// Keys, APIs, outcomes, ids and attributes of events are in what these commands show.
func TestEventsDrawNothing(t *testing.T) {
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules.yaml")
	const text = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: t}
spec:
  rules:
    - {name: a, match: {api: "*"}, limit: 1, per: 1h, then: {block: 1h}}
    - {name: b, match: {api: "*", outcome: ok, attrs.plan: pro}, key: [uid, attrs.plan], when: attrs.n > 5, limit: 1, per: 1h, then: {block: 1h}}
`
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	word := `x\u001b]0;x\u0007\u009b31m\u202e\u007f`
	event := `{"uid":"` + word + `","api":"x","outcome":"` + word + `","id":"` + word + `","attrs":{"plan":"` + word + `","n":1},"time":"2026-11-21T10:00:00Z"}` + "\n"
	other := strings.ReplaceAll(event, `"id":"x`, `"id":"y`) + strings.ReplaceAll(event, `"id":"x`, `"id":"z`)
	bad := "{\x1b[2J\u202e\n" + `{"api":"x","cost":"` + word + "\"}\n"
	for _, args := range [][]string{
		{"trace", "--rules", rules, "--all", "-"}, {"trace", "--rules", rules, "--json", "-"}, {"trace", "--rules", rules, event},
		{"replay", "--rules", rules, "--against", rules, "--all", "-"}, {"replay", "--rules", rules, "--json", "-"},
	} {
		var out bytes.Buffer
		cli.Main(testrun.Context(t), args, strings.NewReader(event+other+bad), &out, &out, testrun.NoEnv)
		if draws(out.String()) || !strings.Contains(out.String(), "31m") {
			t.Errorf("%s: %q", args, out.String())
		}
	}
}
