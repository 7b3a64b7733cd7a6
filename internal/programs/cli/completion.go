package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/programs/completion"
	"github.com/tallygate/tallygate/internal/programs/enforcer"
	"github.com/tallygate/tallygate/internal/run/ops"
)

const completionUsage = `
tallygate completion prints what completes the command lines of tallygate, aggregator and enforcer in a
shell: commands, options, files, and the words that an option takes.

  source <(tallygate completion bash)                                  # in ~/.bashrc
  source <(tallygate completion zsh)                                   # in ~/.zshrc, behind compinit
  tallygate completion fish > ~/.config/fish/completions/tallygate.fish
`

// complete is `tallygate completion`.
func complete(ctx context.Context, c *call) error {
	o := c.options(completionUsage)
	if err := o.Parse(c.args); err != nil {
		return err
	}
	if o.NArg() != 1 {
		return &ops.UsageError{Err: fmt.Errorf("name one shell: %s", strings.Join(completion.Shells(), ", "))}
	}
	if err := completion.Write(c.stdout, o.Arg(0), Programs(ctx)); err != nil {
		return &ops.UsageError{Err: err}
	}
	return nil
}

// Programs describes the three programs with all their options, by asking each for its help.
func Programs(ctx context.Context) []completion.Program {
	tool := completion.Program{Name: "tallygate"}
	for _, cmd := range Commands() {
		if cmd.Name == "version" { // it takes no options, and would print the version
			tool.Commands = append(tool.Commands, completion.Program{Name: cmd.Name, About: cmd.Summary})
			continue
		}
		tool.Commands = append(tool.Commands, completion.Program{
			Name: cmd.Name, Args: cmd.Args, About: cmd.Summary,
			Options: described(func(args []string, out io.Writer) {
				c := &call{name: "tallygate " + cmd.Name, args: args, stdin: strings.NewReader(""), stdout: out, stderr: io.Discard, getenv: unset}
				_ = cmd.run(ctx, c) // always ErrHelp, or its status
			}),
		})
	}
	version := ops.Described{Name: "--version", About: "print the version"}
	server := func(name string, command func(context.Context, []string, io.Writer, io.Writer, func(string) string) int) completion.Program {
		options := described(func(args []string, out io.Writer) { command(ctx, args, out, io.Discard, unset) })
		return completion.Program{Name: name, Aliases: []string{"tallygate-" + name}, Options: append(options, version)}
	}
	return []completion.Program{tool, server("aggregator", aggregator.Command), server("enforcer", enforcer.Command)}
}

func unset(string) string { return "" }

// reader takes the options that a command's help would tell of.
type reader struct {
	io.Writer
	options []ops.Described
}

func (r *reader) Describe(options []ops.Described) { r.options = options }

func described(run func(args []string, out io.Writer)) []ops.Described {
	r := &reader{Writer: io.Discard}
	run([]string{"--help"}, r)
	return r.options
}
