package httplimit

import (
	"context"
	"net/http"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/event"
)

// admit lets a request in that no verdict denies, if it gets a permit where it needs one, and tells its
// caller what is left. api is empty where it is not known yet.
func (g *Gate) admit(w http.ResponseWriter, r *http.Request, p Passage, nameOf func(*http.Request) string, api string, dims []event.Dim) (Passage, bool) {
	tells := g.o.Answers.TellQuotas() && g.table.MayTell(dims)
	if tells && api == "" {
		named := nameOf(r)
		if nameOf = func(*http.Request) string { return named }; named != Ambiguous {
			api = named
		}
	}
	p, ok := g.ask(w, r, p, nameOf, api, dims)
	if tells && ok && api != "" {
		g.o.Answers.Quotas(w.Header(), g.table.Left(api, dims))
	}
	return p, ok
}

// ask asks for a permit. api is empty where it is not known yet.
func (g *Gate) ask(w http.ResponseWriter, r *http.Request, p Passage, nameOf func(*http.Request) string, api string, dims []event.Dim) (Passage, bool) {
	if g.o.Admit == nil || p.permit.ID != "" || g.o.Admit.Idle() || !g.table.Enabled() {
		return p, true
	}
	if api == "" {
		if api = nameOf(r); api == Ambiguous {
			g.o.Refused(w, r)
			return p, false
		}
	}
	own := append([]event.Dim(nil), dims...)
	res, err := g.o.Admit.AdmitRequest(r.Context(), enforce.Request{API: api, Dims: own})
	if err != nil { // the client left, or nothing can be asked for this request
		res.Decision = enforce.Unknown()
	}
	if res.Decision.Allowed {
		if p.held, p.permit = res.Held, res.Permit; p.entered == nil && (p.held != nil || p.permit.ID != "") {
			p.entered = newEntered(g, r, api, nil)
		}
		g.o.Answers.Admitted(w.Header(), res.Standing)
		return p, true
	}
	if res.Decision.Unavailable() {
		w.Header().Set("Retry-After", "1")
	}
	g.deny(w, r, p, res.Decision, api, own)
	return p, false
}

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

// Permit is what the request's event is to carry. The gate's own event does.
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
