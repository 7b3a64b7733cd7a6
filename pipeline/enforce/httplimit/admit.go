package httplimit

import (
	"context"

	"github.com/tallygate/tallygate/event"
)

// Cancel gives a request's permit back, and emits no event: it is for requests that did nothing. A
// permit of PermitHeader is the proxy's: it is settled by the event of Done only.
func (p Passage) Cancel() {
	if p.entered != nil {
		p.entered.leave()
	}
	if p.held != nil {
		p.held.Cancel()
	}
}

// Permit is the permit for the request's event. The gate's own event does.
func (p Passage) Permit() event.Permit { return p.permit }

type permitKey struct{}

// PermitOf returns the permit of a request, for handlers that emit their own events: each permit is for
// one event. It is the zero value for requests that need none.
func PermitOf(ctx context.Context) event.Permit {
	p, _ := ctx.Value(permitKey{}).(event.Permit)
	return p
}

// WithPermit returns a context in which PermitOf finds a permit. Adapters of routers give it to their
// handlers.
func WithPermit(ctx context.Context, p event.Permit) context.Context {
	if p.ID == "" {
		return ctx
	}
	return context.WithValue(ctx, permitKey{}, p)
}
