// Command enforcer is the decision server. See --help.
package main

import (
	"context"
	"os"

	"github.com/tallygate/tallygate/internal/programs/enforcer"
	"github.com/tallygate/tallygate/internal/run/ops"
)

func main() {
	ops.LimitMemory()
	ctx, stop := ops.Stoppable(context.Background())
	status := enforcer.Command(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Getenv)
	stop()
	os.Exit(status)
}
