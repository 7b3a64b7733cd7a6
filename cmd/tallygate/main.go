// Command tallygate is the tool: dev, check, explain, emit. See --help.
package main

import (
	"context"
	"os"

	"github.com/tallygate/tallygate/internal/programs/cli"
	"github.com/tallygate/tallygate/internal/run/ops"
)

func main() {
	ops.LimitMemory()
	ctx, stop := ops.Stoppable(context.Background())
	status := cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv)
	stop()
	os.Exit(status)
}
