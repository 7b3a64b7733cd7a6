package doctor

import (
	"context"
	"time"
)

// takeoverTime is how long a takeover may take after the session timeout: the group rebalances, and
// new owners read some million keys.
const takeoverTime = 10 * time.Second

// checkStaleness compares --max-staleness with the outage that the failure of one aggregator
// causes: its partitions have no publisher until the session timeout has passed and others have
// taken them over.
func (e *examination) checkStaleness(context.Context) outcome {
	const fix = "raise the enforcers' --max-staleness above the aggregators' --session-timeout plus a takeover; give doctor the values of the programs"
	tolerated, timeout := e.cfg.MaxStaleness, e.cfg.SessionTimeout
	switch {
	case tolerated <= timeout:
		return found(fail("staleness", fix, "--max-staleness %v is not more than --session-timeout %v: when one aggregator fails, all enforcers become stale at once", tolerated, timeout))
	case tolerated < timeout+takeoverTime:
		return found(warn("staleness", fix, "--max-staleness %v leaves %v after --session-timeout %v for a takeover: enforcers may become stale when an aggregator fails", tolerated, tolerated-timeout, timeout))
	}
	return found(ok("staleness", "--max-staleness %v covers --session-timeout %v and a takeover", tolerated, timeout))
}
