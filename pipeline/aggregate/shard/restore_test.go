package shard

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
)

// A checkpoint of the version before may hold a time from the future.
func TestACheckpointFromTheFutureIsBounded(t *testing.T) {
	s := New(Config{Of: 1}, Rules{Set: compile(t, "  rules: ["+movingEnds["bucket"]+"]")})
	clock := Clock{Local: event.FromTime(time.Now()), Broker: event.NoTime}
	s.takeover.restore(&checkpoint{Version: checkpointVersion, Broker: clock.Local + event.Day}, clock)
	if s.log.broker > clock.Local || s.log.Time(clock) > clock.Local {
		t.Errorf("the time is %v, and the latest broker time %v", s.log.Time(clock), s.log.broker)
	}
}
