package notify

import (
	"time"

	"github.com/tallygate/tallygate/internal/notify/note"
)

// leads reports whether this program tells the receiver of states, which no entry of the audit has. Of several
// programs the one that has the first partition does; one that reaches no Kafka does, too, after a while.
func (w *worker) leads() bool {
	if w.session == nil {
		return time.Since(w.without) >= aloneAfter
	}
	_, leads := w.session.places[0]
	return leads
}

// see tells what has begun and ended since the receiver was told last.
func (w *worker) see(active []note.Note) {
	if !w.leads() {
		return
	}
	now := time.Now()
	lasts := map[string]bool{}
	for i := range active {
		n := &active[i]
		id := n.ID()
		lasts[id] = true
		at, known := w.told.at[id]
		again := w.Type == "alertmanager" && now.Sub(at) >= w.Repeat
		if (!known || again) && !w.told.queued[id] {
			w.told.queued[id] = w.book.Tell(n, now)
		}
	}
	for id, was := range w.told.state {
		if lasts[id] || w.told.queued[id] {
			continue
		}
		was.State, was.At, was.What = note.Resolved, now, "no longer: "+was.What
		if w.told.queued[id] = w.book.Tell(&was, now); !w.told.queued[id] {
			w.told.forget(id)
		}
	}
}

// done notes what the receiver has been told.
func (t *told) done(states []note.Note, now time.Time) {
	for _, n := range states {
		id := n.ID()
		delete(t.queued, id)
		if n.State == note.Resolved {
			t.forget(id)
			continue
		}
		t.at[id], t.state[id] = now, n
	}
}

func (t *told) forget(id string) {
	delete(t.at, id)
	delete(t.state, id)
	delete(t.queued, id)
}
