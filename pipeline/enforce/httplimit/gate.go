package httplimit

import (
	"errors"
	"net/http"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/gate"
	"github.com/tallygate/tallygate/verdict"
)

// Middleware calls the next handler for each request that no verdict denies. It panics when the
// table is nil or the options are invalid: such a service would never deny anything. NewGate
// returns an error instead.
func Middleware(table *enforce.Table, options Options) func(http.Handler) http.Handler {
	g, err := NewGate(table, options)
	if err != nil {
		panic(err)
	}
	return g.Handler
}

// Gate checks requests for middleware of any router. Adapters call Enter before a request and Done after it; Handler
// does both for net/http. Its methods may be called by many goroutines.
type Gate struct {
	door     *Door
	table    *enforce.Table
	throttle *enforce.Throttle
	o        Options
	attrs    []attr
	watch    watch

	brought   Brought
	responses Responses
}

type attr struct {
	dim string
	of  func(*http.Request) string
}

// NewGate returns a gate, or an error for a nil table and invalid options.
func NewGate(table *enforce.Table, options Options) (*Gate, error) {
	options.setDefaults()
	door, err := NewDoor(table, options.door())
	if err := errors.Join(options.validate(), err); err != nil {
		return nil, err
	}
	g := &Gate{door: door, table: door.table, throttle: door.throttle, o: options}
	g.watch.init(&options)
	for name, of := range options.Attrs {
		g.attrs = append(g.attrs, attr{"attrs." + name, of})
	}
	return g, nil
}

// Handler returns a handler that calls next for allowed requests. When next is a ServeMux,
// Options.API already sees the Request.Pattern that the mux will find.
func (g *Gate) Handler(next http.Handler) http.Handler {
	api := g.o.API
	if mux, ok := next.(interface {
		Handler(*http.Request) (http.Handler, string)
	}); ok {
		api = func(r *http.Request) string {
			_, r.Pattern = mux.Handler(r) // as the mux itself does, only earlier
			return routedAPI(g.o.API, r)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, ok := g.enter(w, r, api)
		switch {
		case !ok:
		case p.entered == nil:
			next.ServeHTTP(w, r)
		default:
			sw, finished := p.writer(w), false
			defer func() { sw.end(p, finished) }() // also when the handler panics: what it did is done
			inside := p.Request(r)
			p.entered.r = inside // Options.Event sees what routers note in it
			next.ServeHTTP(sw.forHandler(), inside)
			finished = true
		}
	})
}

// Enter decides on a request. When ok is false, the response is already written. Otherwise the
// caller handles the request and then calls the Passage's Done.
func (g *Gate) Enter(w http.ResponseWriter, r *http.Request) (p Passage, ok bool) {
	return g.enter(w, r, g.o.API)
}

func (g *Gate) enter(w http.ResponseWriter, r *http.Request, nameOf func(*http.Request) string) (p Passage, ok bool) {
	if g.o.Skip != nil && g.o.Skip(r) {
		return Passage{}, true
	}
	var space [maxDims]event.Dim
	dims, api := g.dims(space[:0], r), ""
	if gate.AnyAmbiguous(dims) {
		g.o.Refused(w, r)
		return p, false
	}
	g.watch.request(r, dims)
	if g.o.Events != nil {
		if api = nameOf(r); api == Ambiguous {
			g.o.Refused(w, r)
			return p, false
		}
	}
	if g.o.PermitHeader {
		p.permit = g.brought.Permit(r.Header[event.PermitHeader]...)
	}
	if g.o.Events != nil || g.o.NoteHeader || p.permit.ID != "" {
		p.entered = newEntered(g, r, api, dims)
	}
	most := g.reserve(r, p)
	// Nearly no key has a verdict, and without one the API need not be known.
	checks, asks, tells := g.door.mayDeny(dims), p.permit.ID == "" && g.door.asks(), g.door.mayTell(dims)
	if !checks && !asks && !tells {
		return p, true
	}
	if g.o.Events == nil {
		if api = nameOf(r); api == Ambiguous {
			if !checks && !asks { // nobody knows of what something is left
				return p, true
			}
			g.o.Refused(w, r)
			return p, false
		}
	}
	d := enforce.Decision{Allowed: true}
	if checks {
		d = g.table.CheckDims(api, dims)
	}
	if !d.Allowed || asks || g.throttle.Concerns(d) {
		return g.pass(w, r, p, gate.Request{API: api, Dims: append([]event.Dim(nil), dims...), Decision: d, Reserve: most})
	}
	g.table.CountDecision(d)
	g.checked(r, d)
	if tells && api != "" {
		g.o.Answers.Quotas(w.Header(), g.table.Left(api, dims))
	}
	return p, true
}

// reserve returns how much a request may use at most. Its event has that as its first notes: a handler that ends
// without a word, as one that panics, has used all of it for what anybody knows.
func (g *Gate) reserve(r *http.Request, p Passage) (most enforce.Reservation) {
	if g.o.Reserve == nil || g.o.Events == nil && g.o.Admit == nil {
		return most
	}
	most = g.o.Reserve(r)
	if p.entered == nil {
		return most
	}
	for _, a := range most.Attrs {
		p.entered.Notes.Add(enforce.Attr(a.Name, a.Value))
	}
	if most.Cost > 0 {
		p.entered.Notes.Add(enforce.Cost(most.Cost))
	}
	return most
}

// pass decides on a request that is denied, waits, or asks for a permit.
func (g *Gate) pass(w http.ResponseWriter, r *http.Request, p Passage, q gate.Request) (Passage, bool) {
	q.Permit, q.Languages, q.Head = p.permit, r.Header.Get("Accept-Language"), r.Method == http.MethodHead
	q.Tells, q.Header = true, w.Header()
	out := g.door.Pass(r.Context(), &q)
	if q.Decision.Allowed {
		g.checked(r, q.Decision)
	}
	if out.Do != gate.Allow {
		g.deny(w, r, p, &q, &out)
		return p, false
	}
	if p.held, p.permit = out.Held, out.Permit; p.entered == nil && (p.held != nil || p.permit.ID != "") {
		p.entered = newEntered(g, r, q.API, nil)
	}
	return p, true
}

// checked tells of a check that lets a request in.
func (g *Gate) checked(r *http.Request, d enforce.Decision) {
	if d.Rule() != "" && g.o.Logged != nil {
		g.o.Logged(r, d)
	}
}

func (g *Gate) dims(dims []event.Dim, r *http.Request) []event.Dim {
	if g.o.UID != nil {
		dims = appendDim(dims, dimUID, g.o.UID(r))
	}
	if g.o.IP != nil {
		dims = appendDim(dims, dimIP, g.o.IP(r))
	}
	for i := range g.attrs {
		dims = appendDim(dims, g.attrs[i].dim, g.attrs[i].of(r))
	}
	return dims
}

func appendDim(dims []event.Dim, name, value string) []event.Dim {
	if value == "" {
		return dims
	}
	return append(dims, event.Dim{Name: name, Value: value})
}

// deny answers a request that is denied, and emits its event if it is to have one.
func (g *Gate) deny(w http.ResponseWriter, r *http.Request, p Passage, q *gate.Request, out *gate.Outcome) {
	if !g.door.Emits(q) {
		g.answer(w, r, out)
		return
	}
	sw := &statusWriter{ResponseWriter: w}
	g.answer(sw, r, out)
	p.end(sw.status, out.Event)
}

func (g *Gate) answer(w http.ResponseWriter, r *http.Request, out *gate.Outcome) {
	if after := out.Header["Retry-After"]; out.By.Unavailable() && after != nil { // also where Denied answers
		w.Header()["Retry-After"] = after
	}
	switch {
	case out.By.Action() == verdict.ActChallenge && g.o.Challenge != nil:
		g.o.Challenge(w, r, out.By)
	case g.o.Denied != nil:
		g.o.Denied(w, r, out.By)
	default:
		Answer(w, out)
	}
}
