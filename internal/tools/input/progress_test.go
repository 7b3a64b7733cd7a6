package input

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// Where there is no terminal, a long command said nothing until its end.
func TestProgressWithoutATerminal(t *testing.T) {
	var out testrun.Output
	var done atomic.Int64
	p := NewProgressLines(&out, "unblock", 40, time.Millisecond, done.Load)
	testrun.Eventually(t, "a line says that nothing is done yet", func() bool { return out.Has("unblock: 0 of 40\n") })
	done.Store(17)
	testrun.Eventually(t, "a line says how much is done", func() bool { return out.Has("unblock: 17 of 40\n") })
	p.Finish()
	before := out.String()
	NewProgressLines(&out, "unblock", 0, time.Nanosecond, done.Load).Finish()
	if out.String() != before {
		t.Errorf("of nothing it says %q", out.String()[len(before):])
	}
}
