package ops

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The room that the heap has to grow in between two collections: as much as is in use beside the state, as Go
// would give it without one, but at least leastRoom and an eighth of the state. A collection costs by what has
// pointers, which the state has not, so that room for all of it saves next to nothing.
const (
	leastRoom  = 96 << 20
	stateShare = 8

	defaultPercent = 100 // Go's
	leastPercent   = 10
	paceEvery      = 250 * time.Millisecond
)

// goGC is Go's own variable.
const goGC = "GOGC"

// PaceCollector has Go's collector run before the heap has grown to twice what is in use, until ctx ends: state
// is how many bytes without pointers are in it for long. Where GOGC is set it changes nothing. A memory limit holds
// beside it.
func PaceCollector(ctx context.Context, state func() int64) {
	if os.Getenv(goGC) != "" {
		return
	}
	p := pacer{percent: defaultPercent, set: func(percent int) { debug.SetGCPercent(percent) }}
	defer p.set(defaultPercent)
	tick := time.NewTicker(paceEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.follow(inUse(), state())
		case <-ctx.Done():
			return
		}
	}
}

// inUse returns the bytes in use at the last collection.
func inUse() int64 {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if live[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return int64(live[0].Value.Uint64())
}

// pacer sets the percentage by which the heap may grow.
type pacer struct {
	percent int // as it is set
	set     func(percent int)
}

// follow sets the percentage if it differs by more than a tenth: to set it has the runtime plan anew.
func (p *pacer) follow(live, state int64) {
	want := percentOf(live, state)
	if change := max(want-p.percent, p.percent-want); change*10 > p.percent || change > 0 && want == defaultPercent {
		p.percent = want
		p.set(want)
	}
}

// percentOf is by how much a heap may grow of which so much is in use, and so much of that is state.
func percentOf(live, state int64) int {
	if live <= 0 {
		return defaultPercent
	}
	room := max(live-state, leastRoom, state/stateShare)
	return int(max(leastPercent, min(defaultPercent, room*100/live)))
}
