package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/programs/cli"
	"github.com/tallygate/tallygate/internal/programs/completion"
)

// completed are command lines up to the cursor, and what each shell offers there: some of it, and
// what it does not offer.
var completed = []struct {
	line       string
	want, none []string
}{
	{"tallygate ", []string{"check", "dev", "completion", "version"}, []string{"--json"}},
	{"tallygate e", []string{"emit", "explain", "exempt", "erase"}, []string{"dev"}},
	{"tallygate check --", []string{"--json", "--config", "--help"}, []string{"--kafka"}},
	{"tallygate check r", []string{"rules.yaml", "rules of ours.yaml"}, []string{"access.log"}},
	{"tallygate dev --rules r", []string{"rules.yaml"}, []string{"access.log"}},
	{"tallygate emit --format ", []string{"json", "combined"}, []string{"access.log", "--rate"}},
	{"tallygate emit --from ", []string{"start", "end"}, nil},
	{"tallygate audit --from ", nil, []string{"start", "access.log"}},
	{"tallygate emit --follow a", []string{"access.log"}, []string{"start"}},
	{"tallygate emit --kafka a", nil, []string{"access.log"}},
	{"tallygate completion ", []string{"bash", "zsh", "fish"}, []string{"rules.yaml"}},
	{"tallygate nosuch ", nil, []string{"check", "rules.yaml"}},
	{"aggregator --log-l", []string{"--log-level"}, []string{"--log-format"}},
	{"aggregator --log-level ", []string{"debug", "error"}, []string{"--log-level"}},
	{"tallygate-aggregator --kafka-sasl s", []string{"scram-sha-256", "scram-sha-512"}, []string{"plain"}},
	{"enforcer --in-doubt=l", []string{"last-known", "local"}, []string{"open"}},
	{"enforcer --answers r", []string{"rules.yaml"}, nil},
	{"tallygate-enforcer --snap", []string{"--snapshot"}, []string{"--rules"}},
}

// completeIn writes the script and some files into a folder, and wants what a shell offers there for each
// command line.
func completeIn(t *testing.T, shell string, offered func(dir, script string, lines []string) [][]string) {
	t.Helper()
	if _, err := exec.LookPath(shell); err != nil {
		t.Skip("there is no " + shell)
	}
	dir := t.TempDir()
	for _, name := range []string{"rules.yaml", "rules of ours.yaml", "access.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := filepath.Join(t.TempDir(), "script")
	f, err := os.Create(script)
	if err != nil {
		t.Fatal(err)
	}
	if err := completion.Write(f, shell, cli.Programs(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range completed {
		lines = append(lines, c.line)
	}
	all := offered(dir, script, lines)
	if len(all) != len(lines) {
		t.Fatalf("%d lines, and %d answers: %q", len(lines), len(all), all)
	}
	for i, c := range completed {
		t.Run(c.line, func(t *testing.T) {
			got := all[i]
			for _, w := range c.want {
				if !slices.Contains(got, w) {
					t.Errorf("%q is not offered, only %q", w, got)
				}
			}
			for _, n := range c.none {
				if slices.Contains(got, n) {
					t.Errorf("%q is offered, in %q", n, got)
				}
			}
		})
	}
}

// run returns the lines that a command prints in a folder.
func run(t *testing.T, dir, name string, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || errs.Len() > 0 {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, &errs)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

func TestCompletionInBash(t *testing.T) {
	completeIn(t, "bash", func(dir, script string, lines []string) (all [][]string) {
		for _, line := range lines {
			words := strings.Split(strings.ReplaceAll(line, "=", " = "), " ") // as readline splits them
			quoted := make([]string, len(words))
			for i, w := range words {
				quoted[i] = fmt.Sprintf("%q", w)
			}
			all = append(all, run(t, dir, "bash", "--norc", "-uc", fmt.Sprintf(`source %s
COMP_WORDS=(%s) COMP_CWORD=%d
set -- $(complete -p %s)
"$3"
printf '%%s\n' "${COMPREPLY[@]-}"`, script, strings.Join(quoted, " "), len(words)-1, words[0])))
		}
		return all
	})
}

func TestCompletionInFish(t *testing.T) {
	completeIn(t, "fish", func(dir, script string, lines []string) (all [][]string) {
		commands := "source " + script
		for _, line := range lines {
			commands += fmt.Sprintf("; complete --do-complete %q; echo END", line)
		}
		var offered []string
		for _, l := range run(t, dir, "fish", "--no-config", "-c", commands) {
			if l == "END" {
				all, offered = append(all, offered), nil
				continue
			}
			l, _, _ = strings.Cut(l, "\t") // what it is
			if _, value, ok := strings.Cut(l, "="); ok {
				l = value
			}
			offered = append(offered, strings.ReplaceAll(l, `\ `, " "))
		}
		return all
	})
}

// zsh completes only where a person types, so it gets a terminal of its own. What it is about to offer
// is printed instead.
func TestCompletionInZsh(t *testing.T) {
	t.Parallel()
	completeIn(t, "zsh", func(dir, script string, lines []string) (all [][]string) {
		setup := filepath.Join(t.TempDir(), "setup")
		if err := os.WriteFile(setup, fmt.Appendf(nil, zshSetup, script), 0o600); err != nil {
			t.Fatal(err)
		}
		var offered []string
		for _, l := range run(t, dir, "zsh", append([]string{"-f", "-c", zshTerminal, "zsh", setup}, lines...)...) {
			if _, hit, ok := strings.Cut(strings.TrimRight(l, "\r"), "OFFERED "); ok {
				offered = append(offered, strings.ReplaceAll(hit, `\ `, " "))
			} else if strings.Contains(l, "COMPLETED") {
				all, offered = append(all, offered), nil
			}
		}
		return all
	})
}

const (
	// In a terminal: $1 is sourced, then each of the others is typed, completed and removed again.
	zshTerminal = `
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "source $1"
while zpty -r shell line && [[ $line != *READY* ]]; do :; done
shift
for typed; do
  zpty -w -n shell "$typed"$'\t'
  while zpty -r shell line; do
    print -rn -- "$line"
    if [[ $line == *COMPLETED* ]]; then break; fi
  done
  zpty -w -n shell $'\C-u'
done
zpty -d shell
`
	// There: the script is loaded, and what is found is printed.
	zshSetup = `
unset zle_bracketed_paste
PROMPT= 
LISTMAX=1000000
autoload -Uz compinit
compinit -u -D
source %s
bindkey '^I' complete-word
zstyle ':completion:*' insert-tab false
compadd() {
  local -a hits prefix
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
  builtin compadd -A hits "$@"
  for hit in $hits; do print -r -- "OFFERED $hit"; done
  builtin compadd "$@"
}
completed() { comppostfuncs=(completed); print COMPLETED }
comppostfuncs=(completed)
ready() { print READY }
zle -N zle-line-init ready
`
)

// The words that an option takes are those that its help tells of.
func TestCompletionsWordsAreThoseOfTheHelp(t *testing.T) {
	used := map[string]bool{}
	var look func(p completion.Program)
	look = func(p completion.Program) {
		for _, o := range p.Options {
			used[o.Name] = true
			for _, word := range completion.Choices[o.Name] {
				if !strings.Contains(o.About, word) {
					t.Errorf("%s %s: the help does not tell of %s: %s", p.Name, o.Name, word, o.About)
				}
			}
		}
		for _, c := range p.Commands {
			look(c)
		}
	}
	for _, p := range cli.Programs(t.Context()) {
		if look(p); len(p.Options) < 20 && len(p.Commands) < 20 {
			t.Errorf("%s has %d options and %d commands", p.Name, len(p.Options), len(p.Commands))
		}
		for _, c := range p.Commands {
			if len(c.Options) == 0 && c.Name != "version" {
				t.Errorf("%s %s has no options, not even --config", p.Name, c.Name)
			}
		}
	}
	for name := range completion.Choices {
		if !used[name] {
			t.Errorf("no program has %s", name)
		}
	}
}
