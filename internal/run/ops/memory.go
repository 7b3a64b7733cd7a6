package ops

import (
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// LimitMemory sets the memory limit of Go's collector to nine tenths of what the container, or the
// service's control group, may have. Where there is no such limit, or GOMEMLIMIT is set, it changes nothing.
// The collector then runs more often before the heap has grown to twice what is in use, and not only after
// that: a program that would fit is not killed. The metric go_gc_gomemlimit_bytes has the limit.
func LimitMemory() { limitMemory(memlimit.FromCgroup) }

// goMemLimit is Go's own variable.
const goMemLimit = "GOMEMLIMIT"

func limitMemory(of memlimit.Provider) {
	if os.Getenv(goMemLimit) == "" {
		os.Unsetenv(goMemLimit) // set to nothing: no limit for Go, and for the library one that is set
	}
	// What it cannot read is no limit: then the collector goes on as it does without one.
	_, _ = memlimit.SetGoMemLimitWithOpts(memlimit.WithProvider(of))
}
