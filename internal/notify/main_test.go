package notify

import (
	"context"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// asProgram makes the test's own binary the command, for tests that kill it.
const asProgram = "TALLYGATE_NOTIFY_AS_PROGRAM"

// The meter is sarama's, of the process.
func TestMain(m *testing.M) {
	if args := os.Getenv(asProgram); args != "" {
		ctx, stop := ops.Stoppable(context.Background())
		defer stop()
		os.Exit(Command(ctx, strings.Split(args, "\n"), os.Stdin, os.Stdout, os.Stderr, testrun.Getenv)) //nolint:gocritic // the process ends here
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}
