package completion

import (
	"fmt"
	"strings"

	"github.com/tallygate/tallygate/internal/run/ops"
)

func zsh(programs []Program) string {
	var b strings.Builder
	all := strings.Join(names(programs), " ")
	fmt.Fprintf(&b, "#compdef %s\n# Completion for zsh, written by: tallygate completion zsh\n%s", all, zshBegin)
	for _, p := range programs {
		if len(p.Commands) == 0 {
			continue
		}
		fmt.Fprintf(&b, "  if [[ $program == %s ]]; then\n    if (( CURRENT == 2 )); then\n      commands=(\n", p.Name)
		for _, c := range p.Commands {
			fmt.Fprintf(&b, "        %s\n", quote(c.Name+":"+c.About))
		}
		fmt.Fprintf(&b, "      )\n      _describe -t commands %s commands\n      return\n    fi\n", quote(p.Name+" command"))
		fmt.Fprint(&b, "    program+=\" $words[2]\"\n    shift words\n    (( CURRENT-- ))\n  fi\n")
	}
	b.WriteString("  case $program in\n")
	for _, p := range programs {
		if len(p.Commands) == 0 {
			zshRow(&b, p.Name, p)
		}
		for _, c := range p.Commands {
			zshRow(&b, p.Name+" "+c.Name, c)
		}
	}
	fmt.Fprintf(&b, "  esac\n}\n\n%s  compdef _tallygate %s\nfi\n", zshEnd, all)
	return b.String()
}

func zshRow(b *strings.Builder, name string, p Program) {
	fmt.Fprintf(b, "    %s)\n      _arguments", quote(name))
	for _, o := range options(p) {
		fmt.Fprintf(b, " \\\n        %s", quote(zshOption(o)))
	}
	if a := argument(p); a != "" {
		fmt.Fprintf(b, " \\\n        %s", quote("*:"+zshPart.Replace(p.Args)+":"+zshAction(a)))
	}
	b.WriteString(" ;;\n")
}

// A colon ends a part of what _arguments reads, and a bracket its explanation.
var (
	zshPart = strings.NewReplacer(`\`, `\\`, ":", `\:`)
	zshText = strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`)
)

func zshOption(o ops.Described) string {
	name := o.Name
	v := value(o)
	if v != "" && strings.HasPrefix(name, "--") {
		name += "=" // --name=value, and --name value
	}
	spec := name + "[" + zshText.Replace(brief(o.About)) + "]"
	if v != "" {
		spec += ":" + zshPart.Replace(o.Takes) + ":" + zshAction(v)
	}
	return spec
}

func zshAction(kind string) string {
	switch kind {
	case aFile:
		return "_files"
	case aFolder:
		return "_files -/"
	case anything:
		return " "
	}
	return "(" + strings.ReplaceAll(kind, "|", " ") + ")"
}

const zshBegin = `
_tallygate() {
  local program=${service:t}
  local -a commands
  program=${program#tallygate-}
`

const zshEnd = `# The file is a function when zsh finds it in $fpath, and a script when it is sourced.
if [[ $funcstack[1] == _tallygate ]]; then
  _tallygate "$@"
else
`
