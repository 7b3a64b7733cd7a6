// Command aggregator counts events and publishes verdicts. See --help.
package main

import (
	"context"
	"os"

	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/run/ops"
)

func main() {
	ops.LimitMemory()
	ctx, stop := ops.Stoppable(context.Background())
	status := aggregator.Command(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Getenv)
	stop()
	os.Exit(status)
}
