package owner

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// A partition with a backlog once worked until Go took its processor away. A checkpoint that it had let
// through just before inherited the rest of its time, lost the processor while it held the lock, and the
// partition stood still for up to 0.3 s.
func TestABacklogLetsOthersRun(t *testing.T) {
	t.Parallel()
	p := lonePartition(t)
	at, read := time.Unix(0, 0), 0
	p.intake.turns.clock = func() time.Time {
		read++
		at = at.Add(turnTime / 4)
		return at
	}
	const events = 1 << 12
	for _, records := range benchRecords(events, 1, true) {
		p.Process(&Bundle{Batches: []kafkalog.Batch{kafkalog.Of(records...)}})
	}
	if p.Err() != nil {
		t.Fatal(p.Err())
	}
	// The clock is read before each of the steps that apply gathers, and goes on by a quarter of a turn.
	if least := events / 32 / 5; p.intake.turns.given < least {
		t.Errorf("others were let run %d times, want at least %d: the clock was read %d times", p.intake.turns.given, least, read)
	}
}
