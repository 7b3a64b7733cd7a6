// Command enforcer-kafka is cmd/enforcer with a client of Kafka, for the options that emit events. See --help.
package main

import (
	"context"
	"os"

	"github.com/tallygate/tallygate/internal/programs/enforcer/events"
	"github.com/tallygate/tallygate/internal/run/ops"
)

func main() {
	ops.LimitMemory()
	ctx, stop := ops.Stoppable(context.Background())
	status := events.Command(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Getenv)
	stop()
	os.Exit(status)
}
