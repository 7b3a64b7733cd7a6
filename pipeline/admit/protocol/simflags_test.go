package protocol

import (
	"flag"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "the first simulation's seed; 0: of chance")
	simSteps = flag.Int("sim.steps", testrun.Depth(1_000_000), "steps of all simulations together")
	simTrace = flag.Bool("sim.trace", false, "print what happened in a simulation that failed")
)
