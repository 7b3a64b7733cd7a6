// Package tallygate puts a table in front of fiber's handlers.
package tallygate

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
	"github.com/tallygate/tallygate/pipeline/event"
)

// Options are as in httplimit.Options, for fiber's context instead of http.Request. At least one of UID, IP and Attrs is required.
type Options struct {
	UID, IP func(fiber.Ctx) string
	Attrs   map[string]func(fiber.Ctx) string
	// API names what the request does; nil is RouteAPI. With TemplateAPI the middleware must be a route's own handler.
	API func(fiber.Ctx) string
	// Skip, if set, tells which requests are let in as if there were no middleware: they are neither checked nor emitted.
	Skip    func(fiber.Ctx) bool
	Answers enforce.Answers
	// MaxDelay is how long a request waits for its turn, if its verdict's action is throttle. MaxDelayed is how many may wait at once,
	// and MaxDelayedPerKey how many for one key and rule.
	MaxDelay         time.Duration
	MaxDelayed       int
	MaxDelayedPerKey int
	// Logger is warned of what looks like a mistake in the options: see httplimit.Who. nil is slog.Default().
	Logger *slog.Logger
	// Admit, if set, is asked for each request that no verdict denies. The permit is in the request's event, and for handlers that
	// emit their own in httplimit.PermitOf(c.Context()).
	Admit enforce.Admitter
	// PermitHeader takes a request's permit from the header event.PermitHeader, and asks for no other. Set it only behind a proxy that
	// asks for permits and replaces the header of clients: they could otherwise bring a permit of their own.
	PermitHeader bool
	// Events, if set, gets an event for each allowed request after its response. Handlers add to it by enforce.Note(c.Context(), …).
	Events httplimit.Emitter
	// NoteHeader reads what responses note by the header enforce.NoteHeader, and takes it out of them. Set it where the next handler
	// is a reverse proxy to servers of your own.
	NoteHeader bool
	// EmitDenied emits an event for each request that is denied here, with the outcome limited. Rules count these events only
	// where they name that outcome; to others they tell which limit the caller has now. For that some of them suffice, and are
	// emitted also without EmitDenied: see enforce.Denials.
	EmitDenied bool
}

// Middleware lets requests through to the next handler unless a verdict denies them.
func Middleware(table *enforce.Table, o Options) (fiber.Handler, error) {
	throttle, err := enforce.NewThrottleWith(table, enforce.ThrottleConfig{MaxDelay: o.MaxDelay, MaxDelayed: o.MaxDelayed, MaxDelayedPerKey: o.MaxDelayedPerKey})
	if o.UID == nil && o.IP == nil && len(o.Attrs) == 0 {
		err = errors.Join(err, errors.New("tallygate: at least one of Options.UID, IP and Attrs is needed"))
	}
	if err != nil {
		return nil, err
	}
	for _, own := range []string{"status", "latency_ms"} {
		if o.Attrs[own] != nil {
			return nil, fmt.Errorf("tallygate: Options.Attrs[%q]: the middleware adds this attribute to its events itself: choose another name", own)
		}
	}
	if o.API == nil {
		o.API = RouteAPI
	}
	return (&gate{o: o, table: table, throttle: throttle, denials: enforce.NewDenials(), who: httplimit.NewWho(o.Logger, o.UID != nil)}).handle, nil
}

type gate struct {
	o        Options
	table    *enforce.Table
	throttle *enforce.Throttle
	brought  httplimit.Brought
	noted    httplimit.Responses
	denials  *enforce.Denials
	who      *httplimit.Who
}

func (g *gate) handle(c fiber.Ctx) error {
	if g.o.Skip != nil && g.o.Skip(c) {
		return c.Next()
	}
	began, api, dims := time.Now(), strings.Clone(g.o.API(c)), g.o.dims(c)
	g.who.Request(dims)
	if slices.ContainsFunc(dims, func(d event.Dim) bool { return d.Value == httplimit.Ambiguous }) {
		return fiber.NewError(fiber.StatusBadRequest, "It is not clear who sends this request: a header that says so has several values.")
	}
	d := g.throttle.Await(c.Context(), g.table.CheckDims(api, dims), api, dims)
	g.table.CountDecision(d)
	a := enforce.Admission{Decision: d, Permit: g.broughtBy(c)}
	if d.Allowed {
		a = g.admit(c, api, dims, a)
	}
	if !a.Decision.Allowed {
		err := g.o.deny(c, a.Decision)
		if g.o.Events != nil && (g.o.EmitDenied || g.denials.Emits(api, dims)) {
			g.o.Events.Emit(eventOf(api, dims, began, event.OutcomeLimited, c.Response().StatusCode(), a.Permit))
		}
		return err
	}
	notes := &enforce.NoteContext{Context: c.Context()}
	if g.o.Events != nil || a.Held != nil {
		c.SetContext(notes)
	}
	err := error(fiber.ErrInternalServerError) // when a handler panics
	defer func() {
		g.takeNote(c, &notes.Notes)
		g.o.done(c, api, dims, began, a, err, &notes.Notes)
	}()
	err = c.Next()
	return err
}

// broughtBy is the permit that the proxy in front has asked for.
func (g *gate) broughtBy(c fiber.Ctx) event.Permit {
	if !g.o.PermitHeader {
		return event.Permit{}
	}
	var values []string
	for _, v := range c.Request().Header.PeekAll(event.PermitHeader) {
		values = append(values, string(v))
	}
	return g.brought.Permit(values...)
}

// admit asks for the permit of a request that no verdict denies, unless the proxy in front has.
func (g *gate) admit(c fiber.Ctx, api string, dims []event.Dim, a enforce.Admission) enforce.Admission {
	if g.o.Admit != nil && a.Permit.ID == "" && !g.o.Admit.Idle() && g.table.Enabled() {
		var err error
		if a, err = g.o.Admit.AdmitRequest(c.Context(), enforce.Request{API: api, Dims: dims}); err != nil { // nothing can be asked for it
			a.Decision = enforce.Unknown()
		}
	}
	if a.Decision.Allowed && a.Standing.Rule != "" {
		header := http.Header{}
		g.o.Answers.Admitted(header, a.Standing)
		setHeader(c, header)
	} else if a.Decision.Unavailable() {
		c.Set("Retry-After", "1")
	}
	if a.Decision.Allowed && g.table.MayTell(dims) {
		header := http.Header{}
		for _, name := range []string{"RateLimit", "RateLimit-Policy"} { // of the permit
			if value := string(c.Response().Header.Peek(name)); value != "" {
				header.Set(name, value)
			}
		}
		g.o.Answers.Quotas(header, g.table.Left(api, dims))
		setHeader(c, header)
	}
	if a.Permit.ID != "" {
		c.SetContext(httplimit.WithPermit(c.Context(), a.Permit))
	}
	return a
}

// takeNote takes what the response notes out of it.
func (g *gate) takeNote(c fiber.Ctx, to *enforce.Notes) {
	if !g.o.NoteHeader {
		return
	}
	var values []string
	for _, v := range c.Response().Header.PeekAll(enforce.NoteHeader) {
		values = append(values, string(v))
	}
	if values != nil {
		c.Response().Header.Del(enforce.NoteHeader)
		to.Add(g.noted.Notes(values...)...)
	}
}

// done emits the request's event, and then ends its permit.
func (o *Options) done(c fiber.Ctx, api string, dims []event.Dim, began time.Time, a enforce.Admission, err error, notes *enforce.Notes) {
	status := c.Response().StatusCode()
	if failed, ok := errors.AsType[*fiber.Error](err); ok {
		status = failed.Code
	} else if err != nil {
		status = fiber.StatusInternalServerError
	}
	e := eventOf(api, dims, began, httplimit.OutcomeOf(status), status, a.Permit)
	if notes.Apply(&e); o.Events != nil {
		o.Events.Emit(e)
	}
	if a.Held != nil {
		a.Held.Done(e.Outcome)
	}
}

func eventOf(api string, dims []event.Dim, began time.Time, outcome string, status int, permit event.Permit) event.Event {
	e := httplimit.EventOf(api, dims, began, outcome, event.Attr{Name: "status", Value: event.NumberValue(event.Decimal(status) * event.One)})
	e.Permit = permit
	return e
}

// dims copies what it returns: fiber's strings are its buffers', and events outlive them.
func (o *Options) dims(c fiber.Ctx) (dims []event.Dim) {
	add := func(name string, of func(fiber.Ctx) string) {
		if of == nil {
			return
		}
		if value := of(c); value != "" {
			dims = append(dims, event.Dim{Name: name, Value: strings.Clone(value)})
		}
	}
	add("uid", o.UID)
	add("ip", o.IP)
	for name, of := range o.Attrs {
		add("attrs."+name, of)
	}
	return dims
}

// Header returns the value of a header field; several are httplimit.Ambiguous, and such a request is refused with 400. Take care that
// clients cannot set it.
func Header(name string) func(fiber.Ctx) string {
	return func(c fiber.Ctx) string {
		switch values := c.Request().Header.PeekAll(name); len(values) {
		case 0:
			return ""
		case 1:
			return string(values[0])
		default:
			return httplimit.Ambiguous
		}
	}
}

func (o *Options) deny(c fiber.Ctx, d enforce.Decision) error {
	status, header, problem := o.Answers.Denial(d, enforce.DenialContext{Languages: c.Get("Accept-Language")})
	setHeader(c, header)
	body, err := json.Marshal(problem)
	if err != nil {
		return err
	}
	c.Set("Content-Type", "application/problem+json")
	return c.Status(status).Send(body)
}

func setHeader(c fiber.Ctx, header http.Header) {
	for name := range header {
		c.Set(name, header.Get(name))
	}
}

// RouteAPI names an API by the method and the first two segments of the path, as the client wrote it: with UnescapePath, c.Path has
// been decoded, and would be decoded twice.
func RouteAPI(c fiber.Ctx) string { return httplimit.PathAPI(c.Method(), c.OriginalURL()) }

// TemplateAPI names an API by its route: GET /orders/:id is get.orders.id. Fiber knows a request's route only in that route's own handlers:
//
//	app.Get("/orders/:id", limit, handler)
func TemplateAPI(c fiber.Ctx) string { return httplimit.TemplateAPI(c.Method(), c.Route().Path) }
