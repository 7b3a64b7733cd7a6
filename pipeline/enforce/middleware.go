package enforce

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Options says how a request tells who does what, and what becomes of it. At least one of UID, IP and Attrs is required: there is no
// default that would not be a guess, and a header that a client can set is not who it is.
type Options struct {
	// UID returns the user, after your authentication; "" is nobody. Header, Cookie and ContextValue make such functions.
	UID func(*http.Request) string
	// IP returns the client's address, without a port; "" is unknown. ClientIP makes such a function.
	IP func(*http.Request) string
	// Attrs returns attributes by their names, for rules whose key has attrs.NAME; "" is absent. The names status and latency_ms are
	// those of attributes that events get anyway, and refused.
	Attrs map[string]func(*http.Request) string
	// API names what the request does, as events do: order.create. Nil is RouteAPI. It is called once, before the request is passed on, and
	// the check and the event have that name. Without Events it is called only for those who have a verdict.
	API func(*http.Request) string

	// Answers says how denied requests are answered.
	Answers Answers
	// Denied answers them instead; nil is Answers.Write. What it tells callers of the rule is Answers.PublicName.
	Denied func(http.ResponseWriter, *http.Request, Decision)
	// Challenge answers requests that are to prove something first, such as that a person made them; nil is Denied.
	Challenge func(http.ResponseWriter, *http.Request, Decision)
	// Refused answers requests of which it is not clear who or what they are, since one of these functions returned Ambiguous; nil is
	// WriteRefused.
	Refused func(http.ResponseWriter, *http.Request)
	// Logged is told of requests that pass by a verdict whose action is log; nil is nobody.
	Logged func(*http.Request, Decision)
	// MaxDelay is how long a request waits for the end of a verdict whose action is throttle; 0 is 1 s, negative is no time. A
	// request whose verdict ends later is denied at once.
	MaxDelay time.Duration
	// MaxDelayed is how many requests may wait at once; 0 is 1,000. Further ones are denied.
	MaxDelayed int

	// Events, if set, gets an event for each request that was let through, when it has been answered: who and what, the outcome
	// by its status, as OutcomeOf has it, and the attributes status and latency_ms. An emit.Emitter is one.
	Events Emitter
	// EmitDenied emits an event also for each request that was denied here, with the outcome denied. Mind that rules count it
	// unless they match outcomes.
	EmitDenied bool
	// Event may complete an event, or change it; nil leaves it as it is. Returning false drops it.
	Event func(*http.Request, *event.Event) bool
}

// Emitter sends events. Emit must not block.
type Emitter interface {
	Emit(event.Event) bool
}

func (o *Options) setDefaults() {
	if o.API == nil {
		o.API = RouteAPI
	}
	if o.Refused == nil {
		o.Refused = WriteRefused
	}
}

func (o *Options) validate() error {
	var errs []error
	if o.UID == nil && o.IP == nil && len(o.Attrs) == 0 {
		errs = append(errs, errors.New("enforce: at least one of Options.UID, IP and Attrs is needed"))
	}
	if len(o.Attrs) > maxDims-2 {
		errs = append(errs, fmt.Errorf("enforce: Options.Attrs has %d, want at most %d", len(o.Attrs), maxDims-2))
	}
	for name, of := range o.Attrs {
		if of == nil || name == "" {
			errs = append(errs, fmt.Errorf("enforce: Options.Attrs[%q] needs a name and a function", name))
		}
		if slices.Contains(ownAttrs[:], name) {
			errs = append(errs, fmt.Errorf("enforce: Options.Attrs[%q]: the gate adds this attribute to its events itself: choose another name", name))
		}
	}
	return errors.Join(append(errs, o.Answers.Validate())...)
}

// Middleware lets requests through to the next handler unless a verdict denies them. It panics when there is
// no table, or the options name nobody, since that is a mistake in the program: such a service would never deny anything. NewGate returns
// an error.
func Middleware(table *Table, options Options) func(http.Handler) http.Handler {
	g, err := NewGate(table, options)
	if err != nil {
		panic(err)
	}
	return g.Handler
}

// Gate is what middlewares for HTTP have in common. Those of other routers call Enter before and Done after a
// request; Handler is that for net/http.
type Gate struct {
	table    *Table
	o        Options
	attrs    []attr
	throttle *Throttle
}

type attr struct {
	dim, name string
	of        func(*http.Request) string
}

// NewGate checks the options, and that there is a table.
func NewGate(table *Table, options Options) (*Gate, error) {
	options.setDefaults()
	throttle, err := NewThrottle(table, options.MaxDelay, options.MaxDelayed)
	if err := errors.Join(options.validate(), err); err != nil {
		return nil, err
	}
	g := &Gate{table: table, o: options, throttle: throttle}
	for name, of := range options.Attrs {
		g.attrs = append(g.attrs, attr{"attrs." + name, name, of})
	}
	return g, nil
}

// Handler returns a handler that calls next for those who may pass. When next is a ServeMux, Options.API is called with the Request.Pattern
// that the mux will find.
func (g *Gate) Handler(next http.Handler) http.Handler {
	api := g.o.API
	if mux, ok := next.(interface {
		Handler(*http.Request) (http.Handler, string)
	}); ok {
		api = func(r *http.Request) string {
			_, r.Pattern = mux.Handler(r) // as the mux itself does, only earlier
			return g.o.API(r)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, ok := g.enter(w, r, api)
		switch {
		case !ok:
		case p.entered == nil:
			next.ServeHTTP(w, r)
		default:
			sw, finished := &statusWriter{ResponseWriter: w}, false
			defer func() { p.Done(sw.result(finished)) }() // also when the handler panics
			next.ServeHTTP(sw, r)
			finished = true
		}
	})
}

// maxDims is how many dimensions a request may have.
const maxDims = 16

// Enter decides on a request. When ok is false it has been answered; else whoever called calls the Passage's Done when the request is
// answered.
func (g *Gate) Enter(w http.ResponseWriter, r *http.Request) (p Passage, ok bool) {
	return g.enter(w, r, g.o.API)
}

func (g *Gate) enter(w http.ResponseWriter, r *http.Request, nameOf func(*http.Request) string) (p Passage, ok bool) {
	var space [maxDims]event.Dim
	dims, api := g.dims(space[:0], r), ""
	if ambiguous(dims) {
		g.o.Refused(w, r)
		return p, false
	}
	if g.o.Events != nil {
		if api = nameOf(r); api == Ambiguous {
			g.o.Refused(w, r)
			return p, false
		}
		p.entered = g.passage(r, api, dims)
	}
	// Nearly all requests come from those who have no verdict, and for them the API need not be known.
	if !g.table.known(dims) {
		return p, true
	}
	if g.o.Events == nil {
		if api = nameOf(r); api == Ambiguous {
			g.o.Refused(w, r)
			return p, false
		}
	}
	d := g.table.CheckDims(api, dims)
	if d.Action() == verdict.ActThrottle && !d.Allowed {
		d = g.throttle.Await(r.Context(), d, api, append([]event.Dim(nil), dims...))
	}
	if d.Allowed {
		if d.Rule() != "" && g.o.Logged != nil {
			g.o.Logged(r, d)
		}
		return p, true
	}
	g.deny(w, r, d, api, append([]event.Dim(nil), dims...))
	if g.o.EmitDenied {
		p.Done(http.StatusTooManyRequests) // whatever was answered: its outcome is denied
	}
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

func (g *Gate) deny(w http.ResponseWriter, r *http.Request, d Decision, api string, dims []event.Dim) {
	switch {
	case d.Action() == verdict.ActChallenge && g.o.Challenge != nil:
		g.o.Challenge(w, r, d)
	case g.o.Denied != nil:
		g.o.Denied(w, r, d)
	default:
		key := ""
		if len(g.o.Answers.PartitionKey) > 0 {
			key = g.table.keyOf(d, api, dims)
		}
		g.o.Answers.Write(w, r, d, key)
	}
}

// keyOf returns the text of the key whose verdict decided; "" when it is there no more.
func (t *Table) keyOf(d Decision, api string, dims []event.Dim) string {
	for _, v := range t.VerdictsAt(d.At, api, dims) {
		if v.Rule == d.Rule() && v.Until == d.Until {
			return v.KeyText()
		}
	}
	return ""
}
