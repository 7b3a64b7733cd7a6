package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tallygate/tallygate/pipeline/admit"
)

// clock is the offset of a machine's clock from this machine's.
type clock struct {
	name   string
	ahead  time.Duration
	margin time.Duration // the error of the measurement: half the round trip
}

const (
	clockWarn = time.Second
	clockFail = time.Minute
)

// checkClocks compares all clocks that were read. Windows use the brokers' clocks; blocks end by
// the enforcers'.
func (e *examination) checkClocks(context.Context) outcome {
	if len(e.clocks) == 0 {
		return found(skip("clocks", "no clock could be read: neither Redis's nor, on a scratch topic, the brokers'"))
	}
	clocks := append([]clock{{name: "this machine"}}, e.clocks...)
	first, last := clocks[0], clocks[0]
	for _, c := range clocks[1:] {
		if c.ahead < first.ahead {
			first = c
		}
		if c.ahead > last.ahead {
			last = c
		}
	}
	apart := last.ahead - first.ahead
	const fix = "synchronize all machines by NTP (chrony, systemd-timesyncd)"
	switch sure := apart - first.margin - last.margin; {
	case sure > clockFail:
		return found(fail("clocks", fix, "%s is %v ahead of %s: windows and blocks end at the wrong time", last.name, apart.Round(time.Millisecond), first.name))
	case sure > clockWarn:
		return found(warn("clocks", fix, "%s is %v ahead of %s", last.name, apart.Round(time.Millisecond), first.name))
	}
	return found(ok("clocks", "at most %v apart: %s", max(apart.Round(time.Millisecond), time.Millisecond), names(clocks)))
}

func names(clocks []clock) string {
	var all []string
	for _, c := range clocks {
		all = append(all, c.name)
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
	var most time.Duration
	var of string
	for shard := range shards {
		seen, err := looker.Look(ctx, int32(shard), "", nil)
		if err != nil {
			return found(skip("strict-clocks", "cannot read what Redis keeps of strict limits: %v", err))
		}
		if ahead := seen.Ahead.Duration(); ahead > most {
			most, of = ahead, fmt.Sprint("shard ", shard)
		}
	}
	if most <= clockWarn {
		return found(ok("strict-clocks", "strict limits count by Redis' clock"))
	}
	return found(warn("strict-clocks", "synchronize Redis' machine by NTP (chrony, systemd-timesyncd); nothing is to be done about the time that is past",
		"Redis' clock was wrong: strict limits of %s count by one that is %v ahead. It loses a tenth of a second each second; once it is more than a minute ahead, the aggregators set it back", of, most.Round(time.Millisecond)))
}
