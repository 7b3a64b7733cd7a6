package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/tallygate/tallygate/internal/run/ops"
)

// call is one run of a command: its arguments, its streams and its environment.
type call struct {
	name           string // such as "tallygate check"
	args           []string
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
}

// options returns the command's options; usage is the help in front of them.
func (c *call) options(usage string) *ops.Options {
	return ops.NewOptions(c.name, usage, c.stdout, c.getenv)
}

// exitStatus is the error of a command that has already written what went wrong.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// program adapts a command that is a package of its own.
func program(run func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int) func(context.Context, *call) error {
	return func(ctx context.Context, c *call) error {
		return exitStatus(run(ctx, c.args, c.stdin, c.stdout, c.stderr, c.getenv))
	}
}
