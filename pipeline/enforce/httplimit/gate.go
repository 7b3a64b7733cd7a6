package httplimit

import (
	"errors"
	"net/http"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
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

// Gate is what middleware for any router shares. Adapters call Enter before a request and Done
// after it; Handler does both for net/http. Its methods may be called by many goroutines.
type Gate struct {
	table    *enforce.Table
	o        Options
	attrs    []attr
	throttle *enforce.Throttle
	brought  Brought
	watch    watch
	denials  *enforce.Denials

	responses Responses
}

type attr struct {
	dim string
	of  func(*http.Request) string
}

// NewGate returns a gate, or an error for a nil table and invalid options.
func NewGate(table *enforce.Table, options Options) (*Gate, error) {
	options.setDefaults()
	throttle, err := options.throttle(table)
	if err := errors.Join(options.validate(), err); err != nil {
		return nil, err
	}
	g := &Gate{table: table, o: options, throttle: throttle, denials: enforce.NewDenials()}
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
	if ambiguous(dims) {
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
	// Nearly no key has a verdict, and without one the API need not be known.
	if !g.table.MayDeny(dims) && !g.throttle.Busy() {
		return g.admit(w, r, p, nameOf, api, dims)
	}
	if g.o.Events == nil {
		if api = nameOf(r); api == Ambiguous {
			g.o.Refused(w, r)
			return p, false
		}
	}
	d := g.table.CheckDims(api, dims)
	if g.throttle.Concerns(d) {
		d = g.throttle.Await(r.Context(), d, api, append([]event.Dim(nil), dims...))
	}
	g.table.CountDecision(d)
	if d.Allowed {
		if d.Rule() != "" && g.o.Logged != nil {
			g.o.Logged(r, d)
		}
		return g.admit(w, r, p, func(*http.Request) string { return api }, api, dims)
	}
	g.deny(w, r, p, d, api, append([]event.Dim(nil), dims...))
	return p, false
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

func ambiguous(dims []event.Dim) bool {
	for i := range dims {
		if dims[i].Value == Ambiguous {
			return true
		}
	}
	return false
}

func appendDim(dims []event.Dim, name, value string) []event.Dim {
	if value == "" {
		return dims
	}
	return append(dims, event.Dim{Name: name, Value: value})
}

// deny answers a request that is denied, and emits its event if it is to have one. Whatever the answer's
// status is, what a limit denied did not happen.
func (g *Gate) deny(w http.ResponseWriter, r *http.Request, p Passage, d enforce.Decision, api string, dims []event.Dim) {
	if g.o.Events == nil || !g.o.EmitDenied && !g.denials.Emits(api, dims) {
		g.answer(w, r, d, api, dims)
		return
	}
	sw := &statusWriter{ResponseWriter: w}
	g.answer(sw, r, d, api, dims)
	p.end(sw.status, event.OutcomeLimited)
}

func (g *Gate) answer(w http.ResponseWriter, r *http.Request, d enforce.Decision, api string, dims []event.Dim) {
	switch {
	case d.Action() == verdict.ActChallenge && g.o.Challenge != nil:
		g.o.Challenge(w, r, d)
	case g.o.Denied != nil:
		g.o.Denied(w, r, d)
	default:
		key := ""
		if len(g.o.Answers.PartitionKey) > 0 {
			key = keyOf(g.table, d, api, dims)
		}
		g.o.Answers.Write(w, r, d, key)
	}
}

// keyOf returns the text of the key whose verdict decided; "" when the table no longer has it.
func keyOf(table *enforce.Table, d enforce.Decision, api string, dims []event.Dim) (key string) {
	until := event.FromTime(d.Until())
	for _, v := range table.VerdictsAt(event.FromTime(d.At()), api, dims) {
		if v.Rule == d.Rule() && v.Until == until {
			return v.KeyText()
		}
		if v.Rule == d.Rule() && v.Action == verdict.ActThrottle { // d ends when its turn would come
			key = v.KeyText()
		}
	}
	return key
}
