package enforce

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// latencyBounds are the greatest latencies of the buckets, but of the last, which has no bound.
// They are those of the aggregator's tallygate_event_to_verdict_seconds, so that the two can be
// compared.
var latencyBounds = [...]event.Micros{
	1 * ms, 2 * ms, 3 * ms, 4 * ms, 5 * ms, 7500, 10 * ms, 15 * ms, 20 * ms, 25 * ms, 35 * ms, 50 * ms, 75 * ms,
	100 * ms, 150 * ms, 250 * ms, 500 * ms,
	event.Second, 2500 * ms, 5 * event.Second, 10 * event.Second, 30 * event.Second, event.Minute, 5 * event.Minute,
}

const ms = event.Millisecond

// Latency counts the delays from events to blocks in force in a Table.
type Latency struct {
	Count uint64
	Sum   time.Duration
	// Buckets count the blocks that took at most so many seconds. prometheus.NewConstHistogram takes it as it is.
	Buckets map[float64]uint64
	// Exemplars are the last block of each bucket whose event was traced, the fastest first.
	Exemplars []Exemplar
}

// Exemplar is one of the blocks that Latency counts.
type Exemplar struct {
	Trace event.Trace
	Took  time.Duration
	At    time.Time // when it came into force
}

// latencies is the histogram behind Latency.
type latencies struct {
	buckets [len(latencyBounds) + 1]atomic.Uint64
	sum     atomic.Int64 // µs
	traced  [len(latencyBounds) + 1]atomic.Pointer[Exemplar]
	told    func(*verdict.Verdict, event.Micros) // Config.Traced
}

// Latency returns, of all new blocks since NewTable that events triggered, how long after its event
// each came into force here: from the block's Since, which is the event's time, until Apply had
// added it. Where this machine's clock is behind that of the event's, it is less, and 0 at the
// least.
//
// Blocks that a snapshot brought are not in it, nor are those that came before the shard's first
// snapshot or after their end, moved ends, shadow mode, and what commands and changed rules issued.
func (l *latencies) Latency() Latency {
	is := Latency{Sum: event.Micros(l.sum.Load()).Duration(), Buckets: make(map[float64]uint64, len(latencyBounds))}
	for i := range l.buckets {
		is.Count += l.buckets[i].Load()
		if i < len(latencyBounds) {
			is.Buckets[latencyBounds[i].Duration().Seconds()] = is.Count
		}
		if e := l.traced[i].Load(); e != nil {
			is.Exemplars = append(is.Exemplars, *e)
		}
	}
	return is
}

// began notes a block that a change has brought, and that was not in the table.
func (l *latencies) began(v *verdict.Verdict) {
	// What no event triggered has no cause: a pass over changed rules. That of a command is a command.
	if !v.Decides() || v.Rule == verdict.Manual || v.Cause == (verdict.Cause{}) {
		return
	}
	at := now()
	if at >= v.Until {
		return
	}
	took := max(at-v.Since, 0)
	i, _ := slices.BinarySearch(latencyBounds[:], took)
	l.buckets[i].Add(1)
	l.sum.Add(int64(took))
	if v.Trace.IsZero() {
		return
	}
	l.traced[i].Store(&Exemplar{Trace: v.Trace, Took: took.Duration(), At: at.Time()})
	if l.told != nil {
		l.told(v, at)
	}
}
