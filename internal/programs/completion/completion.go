// Package completion writes what completes a command line in bash, zsh and fish. It knows no command
// and no option: they come from the tables that also make the help.
package completion

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tallygate/tallygate/internal/run/ops"
)

// Program is a program, or with Commands a tool whose first argument is one of them.
type Program struct {
	Name     string
	Aliases  []string // other names that it is installed under
	Args     string   // as its help shows them, such as FILE…|-
	About    string
	Options  []ops.Described
	Commands []Program
}

// Shells are those that Write knows.
func Shells() []string { return []string{"bash", "zsh", "fish"} }

// Write writes the script for a shell.
func Write(out io.Writer, shell string, programs []Program) error {
	var text string
	switch shell {
	case "bash":
		text = bash(programs)
	case "zsh":
		text = zsh(programs)
	case "fish":
		text = fish(programs)
	default:
		return fmt.Errorf("there is no completion for %q, only for %s", shell, strings.Join(Shells(), ", "))
	}
	_, err := io.WriteString(out, text)
	return err
}

// What may stand at a place, if it is not one of some words.
const (
	anything = "value" // nothing to offer
	aFile    = "file"
	aFolder  = "folder"
)

// Choices are the words that an option takes, by its name. Its help tells of each of them.
var Choices = map[string][]string{
	"--broker-time":      {"append", "create"},
	"--format":           {"combined", "common", "ndjson", "json", "caddy", "traefik"},
	"--in-doubt":         {"last-known", "open", "closed", "local"},
	"--kafka-sasl":       {"plain", "scram-sha-256", "scram-sha-512"},
	"--log-format":       {"json", "text"},
	"--log-level":        {"debug", "info", "warn", "error"},
	"--on-doubt":         {"closed", "open", "local"},
	"--repeated-headers": {"first", "last", "refuse"},
}

var words = regexp.MustCompile(`^[a-z]+(\|[a-z]+)+$`)

// value names an option's values: words with | between them, or one of the constants above; "" for a switch.
func value(o ops.Described) string {
	switch {
	case o.Takes == "":
		return ""
	case words.MatchString(o.Takes):
		return o.Takes
	case len(Choices[o.Name]) > 0:
		return strings.Join(Choices[o.Name], "|")
	}
	return place(o.Takes)
}

// argument names a program's arguments; "" if it takes none.
func argument(p Program) string {
	if p.Args == "" || words.MatchString(p.Args) {
		return p.Args
	}
	return place(p.Args)
}

func place(text string) string {
	switch {
	case strings.Contains(text, "FILE"), text == "PATH":
		return aFile
	case text == "DIR", text == "folder":
		return aFolder
	}
	return anything
}

// help is an option of every program, of which no table tells.
var help = ops.Described{Name: "--help", About: "explain it, with all options"}

// options returns a program's, sorted.
func options(p Program) []ops.Described {
	all := append(slices.Clone(p.Options), help)
	slices.SortFunc(all, func(a, b ops.Described) int { return strings.Compare(a.Name, b.Name) })
	return all
}

const longest = 72 // characters of a text in a menu

// brief is the beginning of a text, up to where it may end.
func brief(text string) string {
	for _, end := range []string{"; ", " (", ": ", ", "} {
		if utf8.RuneCountInString(text) <= longest {
			break
		}
		text, _, _ = strings.Cut(text, end)
	}
	return text
}

// names are all that a program is called.
func names(programs []Program) (all []string) {
	for _, p := range programs {
		all = append(append(all, p.Name), p.Aliases...)
	}
	return all
}

// quote makes a text one word of a shell's.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
