// Package tallygate puts a table in front of fiber's handlers.
package tallygate

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/gate"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
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
	door, err := httplimit.NewDoor(table, httplimit.DoorOptions{
		Answers: o.Answers, Admit: o.Admit, Events: o.Events, EmitDenied: o.EmitDenied,
		Throttle: enforce.ThrottleConfig{MaxDelay: o.MaxDelay, MaxDelayed: o.MaxDelayed, MaxDelayedPerKey: o.MaxDelayedPerKey},
	})
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
	return (&middleware{o: o, door: door, who: httplimit.NewWho(o.Logger, o.UID != nil)}).handle, nil
}

type middleware struct {
	o       Options
	door    *httplimit.Door
	brought httplimit.Brought
	noted   httplimit.Responses
	who     *httplimit.Who
}

func (g *middleware) handle(c fiber.Ctx) error {
	if g.o.Skip != nil && g.o.Skip(c) {
		return c.Next()
	}
	began, api, dims := time.Now(), strings.Clone(g.o.API(c)), g.o.dims(c)
	g.who.Request(dims)
	q := gate.Request{API: api, Dims: dims, Permit: g.broughtBy(c), Languages: c.Get("Accept-Language"), Tells: true, Header: told(c)}
	out := g.door.Enter(c.Context(), &q)
	for name, values := range out.Header {
		c.Set(name, values[0])
	}
	if out.Do != gate.Allow {
		err := c.Status(out.Status).Send(out.Body())
		if out.Do == gate.Deny && g.door.Emits(&q) {
			g.o.Events.Emit(eventOf(api, dims, began, out.Event, c.Response().StatusCode(), out.Permit))
		}
		return err
	}
	if out.Permit.ID != "" {
		c.SetContext(httplimit.WithPermit(c.Context(), out.Permit))
	}
	notes := &enforce.NoteContext{Context: c.Context()}
	if g.o.Events != nil || out.Held != nil {
		c.SetContext(notes)
	}
	err := error(fiber.ErrInternalServerError) // when a handler panics
	defer func() {
		g.takeNote(c, &notes.Notes)
		g.o.done(c, api, dims, began, &out, err, &notes.Notes)
	}()
	err = c.Next()
	return err
}

// told returns the fields about limits that a middleware in front has set; nil: none.
func told(c fiber.Ctx) (header map[string][]string) {
	for _, name := range []string{"Ratelimit", "Ratelimit-Policy", "X-Ratelimit-Limit"} {
		if value := string(c.Response().Header.Peek(name)); value != "" {
			if header == nil {
				header = map[string][]string{}
			}
			header[name] = []string{value}
		}
	}
	return header
}

// broughtBy is the permit that the proxy in front has asked for.
func (g *middleware) broughtBy(c fiber.Ctx) event.Permit {
	if !g.o.PermitHeader {
		return event.Permit{}
	}
	var values []string
	for _, v := range c.Request().Header.PeekAll(event.PermitHeader) {
		values = append(values, string(v))
	}
	return g.brought.Permit(values...)
}

// takeNote takes what the response notes out of it.
func (g *middleware) takeNote(c fiber.Ctx, to *enforce.Notes) {
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
func (o *Options) done(c fiber.Ctx, api string, dims []event.Dim, began time.Time, a *gate.Outcome, err error, notes *enforce.Notes) {
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

// RouteAPI names an API by the method and the first two segments of the path, as the client wrote it: with UnescapePath, c.Path has
// been decoded, and would be decoded twice.
func RouteAPI(c fiber.Ctx) string { return httplimit.PathAPI(c.Method(), c.OriginalURL()) }

// TemplateAPI names an API by its route: GET /orders/:id is get.orders.id. Fiber knows a request's route only in that route's own handlers:
//
//	app.Get("/orders/:id", limit, handler)
func TemplateAPI(c fiber.Ctx) string { return httplimit.TemplateAPI(c.Method(), c.Route().Path) }
