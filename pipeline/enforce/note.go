package enforce

import (
	"context"
	"slices"
	"sync"

	"github.com/tallygate/tallygate/event"
)

// Noted is something that a handler adds to its request's event: Attr, Cost, Outcome or EventID.
type Noted struct {
	what noted
	name string // of an attribute
	v    event.Value
	cost event.Decimal
}

type noted uint8

const (
	notedAttr noted = iota
	notedCost
	notedOutcome
	notedID
)

// Attr notes an attribute. One of that name that the event has already is replaced.
func Attr(name string, value event.Value) Noted { return Noted{what: notedAttr, name: name, v: value} }

// Cost notes how much the event counts for. Under a strict limit it may be less than what the permit was
// asked for, which is 1 in middlewares or what they reserve, and not more.
func Cost(cost event.Decimal) Noted { return Noted{what: notedCost, cost: cost} }

// Outcome notes how the action ended, where the response's status does not say it.
func Outcome(outcome string) Noted { return Noted{what: notedOutcome, v: event.StringValue(outcome)} }

// EventID notes the event's id: the same one twice counts once, and a refund names it.
func EventID(id string) Noted { return Noted{what: notedID, v: event.StringValue(id)} }

// Note adds to the event that a middleware emits for a request: what only the handler knows. ctx is the
// request's, or made of it. It may be called from any goroutine until the handler returns, and several
// times: of two that say the same the later one holds. Where no middleware emits the event, and after the
// handler has returned, it does nothing. What no event can have is left out: an attribute without a name or
// beyond event.MaxAttrs, a negative cost.
func Note(ctx context.Context, what ...Noted) {
	if n, ok := ctx.Value(notesKey{}).(*Notes); ok {
		n.Add(what...)
	}
}

type notesKey struct{}

// Notes collects a handler's additions to one request's event. The zero value is ready. It is for middlewares and
// adapters, which give handlers a NoteContext.
type Notes struct {
	mu   sync.Mutex
	over bool
	list []Noted
}

// Add is Note for whoever has the Notes.
func (n *Notes) Add(what ...Noted) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.over {
		n.list = append(n.list, what...)
	}
}

// Apply changes an event by what was noted. What is noted later is ignored.
func (n *Notes) Apply(e *event.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
	for i := range n.list {
		n.list[i].apply(e)
	}
}

func (n *Noted) apply(e *event.Event) {
	switch n.what {
	case notedAttr:
		i := slices.IndexFunc(e.Attrs, func(a event.Attr) bool { return a.Name == n.name })
		switch {
		case i >= 0:
			e.Attrs[i].Value = n.v
		case n.name != "" && len(e.Attrs) < event.MaxAttrs:
			e.Attrs = append(e.Attrs, event.Attr{Name: n.name, Value: n.v})
		}
	case notedCost:
		if n.cost >= 0 {
			e.Cost = n.cost
		}
	case notedOutcome:
		e.Outcome = n.v.Text
	case notedID:
		e.ID = n.v.Text
	}
}

// NoteContext is a handler's context, in which Note finds Notes. It is one allocation with whatever holds it.
type NoteContext struct {
	context.Context
	Notes Notes
}

// Value returns the notes to Note, and else what the context around it has.
func (c *NoteContext) Value(key any) any {
	if key == (notesKey{}) {
		return &c.Notes
	}
	return c.Context.Value(key)
}
