package emit

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/event"
)

// traceBytes is the length of a record's trace context.
var traceBytes = len(event.Trace{}.AppendTo(nil))

// ErrNotTraced says that an event is sent without its trace context: TracesPerSecond were traced already.
var ErrNotTraced = errors.New("emit: the event is sent without its trace context: more than Config.TracesPerSecond have one")

// told tells Config.Traced what became of an event that had a context.
func (e *Emitter) told(ev *event.Event, err error) {
	if e.cfg.Traced != nil && !ev.Trace.IsZero() {
		e.cfg.Traced(ev.Trace, err)
	}
}

// toldOf is told for the events of a batch that were sent with theirs.
func (e *Emitter) toldOf(b *batch, err error) {
	if e.cfg.Traced == nil || b.traced == 0 {
		return
	}
	for i := range b.records {
		if trace, ok := event.ParseTrace(b.traceOf(&b.records[i])); ok {
			e.cfg.Traced(trace, err)
		}
	}
}

// traces bounds how many events have a record of their own for their trace context. Callers of a service
// choose whether their requests are traced, and arrays are there to save records.
type traces struct {
	perSecond int64
	second    atomic.Int64 // the last one in which an event was traced
	taken     atomic.Int64 // in it
}

// take reports whether an event's context is sent.
func (t *traces) take() bool { return t.perSecond > 0 && t.takeAt(time.Now().Unix()) }

func (t *traces) takeAt(second int64) bool {
	if last := t.second.Load(); last != second && t.second.CompareAndSwap(last, second) {
		t.taken.Store(0)
	}
	return t.taken.Load() < t.perSecond && t.taken.Add(1) <= t.perSecond
}
