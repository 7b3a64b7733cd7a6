package doctor

import (
	"context"
	"strings"
	"time"
)

// clock is a machine's clock against this one's.
type clock struct {
	name  string
	ahead time.Duration
	doubt time.Duration // how much of it the way there may explain
}

const (
	clockWarn = time.Second
	clockFail = time.Minute
)

// checkClocks compares all clocks that were seen. Windows go by the brokers' time, blocks end by
// the enforcers'.
func (e *examination) checkClocks(context.Context) outcome {
	if len(e.clocks) == 0 {
		return found(skip("clocks", "neither Redis nor, on a scratch topic, Kafka told the time"))
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
	const fix = "let all machines keep their time by NTP (chrony, systemd-timesyncd)"
	switch sure := apart - first.doubt - last.doubt; {
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
