package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/pipeline/admit"
)

// checkClocks compares all clocks that were read. Windows use the brokers' clocks; blocks end by
// the enforcers'.
func (e *examination) checkClocks(context.Context) outcome {
	if len(e.clocks) == 0 {
		return found(skip("clocks", "no clock could be read: neither Redis's nor, on a scratch topic, the brokers'"))
	}
	o := e.cfg.look()
	o.Doctor.Clocks = append([]health.Offset{{Name: "this machine"}}, e.clocks...)
	if results := judged("clocks", o); len(results) > 0 {
		return found(results...)
	}
	first, last := health.Spread(o.Doctor.Clocks)
	return found(ok("clocks", "at most %v apart: %s", max((last.Ahead-first.Ahead).Round(time.Millisecond), time.Millisecond), names(o.Doctor.Clocks)))
}

func names(clocks []health.Offset) string {
	var all []string
	for _, c := range clocks {
		all = append(all, c.Name)
	}
	return strings.Join(all, ", ")
}

// checkStrictClocks looks at the clocks by which the shards count permits. They never go back, so that one stays ahead
// for a while when Redis' clock was.
func (e *examination) checkStrictClocks(ctx context.Context) outcome {
	if !e.strict() || !e.redisUp {
		return outcome{}
	}
	shards := e.cfg.Shards
	looker := admit.NewLooker(e.cfg.Redis, e.cfg.Prefix, shards, int32(shards))
	o := e.cfg.look()
	for shard := range shards {
		seen, err := looker.Look(ctx, int32(shard), "", nil)
		if err != nil {
			return found(skip("strict-clocks", "cannot read what Redis keeps of strict limits: %v", err))
		}
		if ahead := seen.Ahead.Duration(); ahead > o.Doctor.Strict.Ahead {
			o.Doctor.Strict = health.Offset{Name: fmt.Sprint("shard ", shard), Ahead: ahead}
		}
	}
	if results := judged("strict-clocks", o); len(results) > 0 {
		return found(results...)
	}
	return found(ok("strict-clocks", "strict limits count by Redis' clock"))
}

// takeoverTime bounds a takeover after the session timeout: the group rebalances, and new owners read some million
// keys.
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
