package doctor

import (
	"context"
	"strings"
	"time"
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
