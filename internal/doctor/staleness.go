package doctor

import (
	"context"
	"time"
)

// takeoverTime is what a takeover may need beside the session timeout: the group settles, and new owners read some million keys.
const takeoverTime = 10 * time.Second

// checkStaleness compares what enforcers tolerate with what the end of one aggregator costs: its partitions have no publisher until
// the session timeout is over and others have taken them over, and enforcers are as far behind.
func (e *examination) checkStaleness(context.Context) outcome {
	const fix = "raise the enforcers' --max-staleness to more than the aggregators' --session-timeout and a takeover; both as the programs have them"
	tolerated, timeout := e.cfg.MaxStaleness, e.cfg.SessionTimeout
	switch {
	case tolerated <= timeout:
		return found(fail("staleness", fix, "--max-staleness %v is not more than --session-timeout %v: when one aggregator ends, all enforcers are in doubt at once", tolerated, timeout))
	case tolerated < timeout+takeoverTime:
		return found(warn("staleness", fix, "--max-staleness %v leaves %v beyond --session-timeout %v for a takeover: enforcers may be in doubt when an aggregator ends", tolerated, tolerated-timeout, timeout))
	}
	return found(ok("staleness", "--max-staleness %v outlasts --session-timeout %v and a takeover", tolerated, timeout))
}
