package ops

import (
	"errors"
	"math"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// The limit is of the whole process, so this test is not parallel.
func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for _, c := range []struct {
		name, env string
		limit     uint64
		err       error
		want      int64
	}{
		{name: "a limit", limit: 1 << 30, want: 1 << 30 / 10 * 9},
		{name: "GOMEMLIMIT is set", env: "2GiB", limit: 1 << 30, want: math.MaxInt64},
		{name: "no limit", err: memlimit.ErrNoLimit, want: math.MaxInt64},
		{name: "not to be read", err: errors.New("no control group"), want: math.MaxInt64},
	} {
		t.Run(c.name, func(t *testing.T) {
			debug.SetMemoryLimit(math.MaxInt64)
			t.Setenv("GOMEMLIMIT", c.env) // it is put back as it was
			limitMemory(func() (uint64, error) { return c.limit, c.err })
			if got := debug.SetMemoryLimit(-1); max(got-c.want, c.want-got) > 10 {
				t.Errorf("the limit is %d, want %d", got, c.want)
			}
		})
	}
}
