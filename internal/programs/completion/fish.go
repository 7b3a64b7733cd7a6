package completion

import (
	"fmt"
	"strings"
)

func fish(programs []Program) string {
	var b strings.Builder
	b.WriteString("# Completion for fish, written by: tallygate completion fish\n")
	for _, p := range programs {
		fmt.Fprintf(&b, "\ncomplete -c %s -f\n", p.Name)
		if len(p.Commands) > 0 {
			fmt.Fprintf(&b, fishTool, p.Name)
			for _, o := range []string{"help", "version"} {
				fmt.Fprintf(&b, "complete -c %s -n __%s_begins -l %s\n", p.Name, p.Name, o)
			}
		} else {
			fishRows(&b, "complete -c "+p.Name, p)
		}
		for _, c := range p.Commands {
			fmt.Fprintf(&b, "complete -c %s -n __%s_begins -a %s -d %s\n", p.Name, p.Name, c.Name, fishText(c.About))
			fishRows(&b, fmt.Sprintf("complete -c %s -n '__%s_at %s'", p.Name, p.Name, c.Name), c)
		}
		for _, alias := range p.Aliases {
			fmt.Fprintf(&b, "complete -c %s -w %s\n", alias, p.Name)
		}
	}
	return b.String()
}

func fishRows(b *strings.Builder, begin string, p Program) {
	if a := argument(p); a != "" && a != anything {
		fmt.Fprintf(b, "%s%s\n", begin, fishKind(a, " -F"))
	}
	for _, o := range options(p) {
		name := " -l " + strings.TrimPrefix(o.Name, "--")
		if !strings.HasPrefix(o.Name, "--") {
			name = " -s " + strings.TrimPrefix(o.Name, "-")
		}
		takes := ""
		if v := value(o); v != "" {
			takes = fishKind(v, " -r -F")
		}
		fmt.Fprintf(b, "%s%s%s -d %s\n", begin, name, takes, fishText(brief(o.About)))
	}
}

// fishKind returns the command that offers a kind of value; files offers files.
func fishKind(kind, files string) string {
	switch kind {
	case aFile:
		return files
	case aFolder:
		return " -x -a '(__fish_complete_directories)'"
	case anything:
		return " -x"
	}
	return " -x -a " + quote(strings.ReplaceAll(kind, "|", " "))
}

// fishText quotes a text for fish, in which a backslash quotes within single quotes.
func fishText(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}

const fishTool = `
# The first word is a command, and what follows is that command's.
function __%[1]s_begins
    test (count (commandline -opc)) -eq 1
end
function __%[1]s_at
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test $words[2] = $argv[1]
end
`
