// Package tallygate puts a table in front of fiber's handlers.
package tallygate

import (
	"encoding/json"
	"errors"
	"fmt"
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
	API     func(fiber.Ctx) string
	Answers enforce.Answers
	// MaxDelay is how long a request waits for the end of a verdict whose action is throttle, and MaxDelayed how many may wait at once.
	MaxDelay   time.Duration
	MaxDelayed int
	Events     httplimit.Emitter
}

// Middleware lets requests through to the next handler unless a verdict denies them.
func Middleware(table *enforce.Table, o Options) (fiber.Handler, error) {
	throttle, err := enforce.NewThrottle(table, o.MaxDelay, o.MaxDelayed)
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
	return func(c fiber.Ctx) error {
		began, api, dims := time.Now(), strings.Clone(o.API(c)), o.dims(c)
		if slices.ContainsFunc(dims, func(d event.Dim) bool { return d.Value == httplimit.Ambiguous }) {
			return fiber.NewError(fiber.StatusBadRequest, "It is not clear who sends this request: a header that says so has several values.")
		}
		d := throttle.Await(c.Context(), table.CheckDims(api, dims), api, dims)
		if !d.Allowed {
			return o.deny(c, d)
		}
		err := c.Next()
		if o.Events != nil {
			status := c.Response().StatusCode()
			if failed, ok := errors.AsType[*fiber.Error](err); ok {
				status = failed.Code
			} else if err != nil {
				status = fiber.StatusInternalServerError
			}
			o.Events.Emit(httplimit.EventOf(api, dims, began, httplimit.OutcomeOf(status),
				event.Attr{Name: "status", Value: event.NumberValue(event.Decimal(status) * event.One)}))
		}
		return err
	}, nil
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
	for name := range header {
		c.Set(name, header.Get(name))
	}
	body, err := json.Marshal(problem)
	if err != nil {
		return err
	}
	c.Set("Content-Type", "application/problem+json")
	return c.Status(status).Send(body)
}

// RouteAPI names an API by the method and the first two segments of the path, as the client wrote it: with UnescapePath, c.Path has
// been decoded, and would be decoded twice.
func RouteAPI(c fiber.Ctx) string { return httplimit.PathAPI(c.Method(), c.OriginalURL()) }

// TemplateAPI names an API by its route: GET /orders/:id is get.orders.id. Fiber knows a request's route only in that route's own handlers:
//
//	app.Get("/orders/:id", limit, handler)
func TemplateAPI(c fiber.Ctx) string { return httplimit.TemplateAPI(c.Method(), c.Route().Path) }
