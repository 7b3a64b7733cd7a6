package completion

import (
	"fmt"
	"strings"
)

// bash needs no package bash-completion, and works with bash 3.2, which macOS has.
func bash(programs []Program) string {
	var b strings.Builder
	b.WriteString("# Completion for bash, written by: tallygate completion bash\n" + bashBegin)
	row := func(name string, p Program) {
		fmt.Fprintf(&b, "    %s)\n      arguments=%s options=%s ;;\n", quote(name), quote(argument(p)), quote(bashOptions(p)))
	}
	for _, p := range programs {
		if len(p.Commands) == 0 {
			row(p.Name+" ", p)
			continue
		}
		var commands []string
		for _, c := range p.Commands {
			commands = append(commands, c.Name)
			row(p.Name+" "+c.Name, c)
		}
		fmt.Fprintf(&b, "    %s)\n      arguments=%s options='--help --version' ;;\n", quote(p.Name+" "), quote(strings.Join(commands, "|")))
	}
	b.WriteString(bashEnd)
	for _, p := range programs {
		for _, name := range names([]Program{p}) {
			tool := ""
			if len(p.Commands) > 0 {
				tool = "_tool"
			}
			fmt.Fprintf(&b, "complete -F _tallygate%s %s\n", tool, name)
		}
	}
	return b.String()
}

// bashOptions are words such as --json, --config:file and --log-format:json|text.
func bashOptions(p Program) string {
	var all []string
	for _, o := range options(p) {
		word := o.Name
		if v := value(o); v != "" {
			word += ":" + v
		}
		all = append(all, word)
	}
	return strings.Join(all, " ")
}

const bashBegin = `
# _tallygate_rows NAME sets what a program, or a command of tallygate, takes: options as NAME or
# NAME:KIND, and the kind of its arguments. A kind is file, folder, value, or words with | between.
_tallygate_rows() {
  case $1 in
`

const bashEnd = `    *)
      arguments= options= ;;
  esac
}

_tallygate_tool() {
  if ((COMP_CWORD > 1)); then
    _tallygate_at "tallygate ${COMP_WORDS[1]}"
  else
    _tallygate_at 'tallygate '
  fi
}

_tallygate() {
  local program=${COMP_WORDS[0]##*/}
  _tallygate_at "${program#tallygate-} "
}

_tallygate_at() {
  local arguments options option kind= names= IFS=$' \t\n'
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
  COMPREPLY=()
  # Readline makes three words of --option=value.
  if [[ $current == = ]]; then
    current=
  elif [[ $before == = ]]; then
    before=${COMP_WORDS[COMP_CWORD-2]}
  fi
  _tallygate_rows "$1"
  for option in $options; do
    names+="${option%%:*} "
    if [[ $option == "$before:"* ]]; then kind=${option#*:}; fi
  done
  if [[ -z $kind && ($current == -* || -z $arguments || $arguments == value) ]]; then
    COMPREPLY=($(compgen -W "$names" -- "$current"))
    return
  fi
  kind=${kind:-$arguments}
  case $kind in
    value) ;;
    file | folder)
      compopt -o filenames 2>/dev/null
      IFS=$'\n'
      if [[ $kind == file ]]; then
        COMPREPLY=($(compgen -f -- "$current"))
      else
        COMPREPLY=($(compgen -d -- "$current"))
      fi
      ;;
    *) COMPREPLY=($(compgen -W "${kind//|/ }" -- "$current")) ;;
  esac
}

`
