// Package tallygate puts a table in front of echo's handlers.
package tallygate

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

type contextKey struct{}

// Middleware lets requests through to the next handler unless a verdict denies them. Options.API is TemplateAPI unless
// it is set. What earlier handlers have put into echo's context is there for Value. With Options.Admit handlers find their
// permit by httplimit.PermitOf(c.Request().Context()). enforce.Note(c.Request().Context(), …) adds to the event of Options.Events.
func Middleware(table *enforce.Table, options httplimit.Options) (echo.MiddlewareFunc, error) {
	if options.API == nil {
		options.API = TemplateAPI
	}
	gate, err := httplimit.NewGate(table, options)
	if err != nil {
		return nil, err
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			original := c.Request()
			passage, ok := gate.Enter(c.Response(), original.WithContext(context.WithValue(original.Context(), contextKey{}, c)))
			if !ok {
				return nil
			}
			c.SetRequest(passage.Request(original))
			c.Response().Before(func() { passage.TakeNote(c.Response().Header()) })
			end, status := passage.Failed, 0 // when the handler panics
			if c.Response().Committed {
				status = c.Response().Status
			}
			defer func() { end(status) }()
			err := next(c)
			late := err != nil && c.Response().Committed // the status that was sent is not what became of the request
			if err != nil {
				c.Error(err) // answers, so that the status is known
			}
			if status = c.Response().Status; !late || status >= http.StatusBadRequest {
				end = passage.Done
			}
			return nil
		}
	}, nil
}

// Value returns what an earlier handler has put into echo's context with Set; "" when it is no string.
func Value(key string) func(*http.Request) string {
	return httplimit.Context(contextKey{}, func(c echo.Context) string {
		text, _ := c.Get(key).(string)
		return text
	})
}

// TemplateAPI names an API by its route: GET /orders/:id is get.orders.id. A request that no route takes is httplimit.Unrouted.
func TemplateAPI(r *http.Request) string {
	c, ok := r.Context().Value(contextKey{}).(echo.Context)
	switch {
	case ok && c.Path() != "":
		return httplimit.TemplateAPI(r.Method, c.Path())
	case ok && !routed(c):
		return httplimit.Unrouted
	}
	return httplimit.RouteAPI(r)
}

// routed reports whether a route may take a request of which echo names none: middleware given to Pre comes before routing.
func routed(c echo.Context) bool {
	e := c.Echo()
	if len(e.Routers()) > 0 { // of hosts
		return true
	}
	probe := e.AcquireContext()
	defer e.ReleaseContext(probe)
	probe.Reset(c.Request(), c.Response())
	e.Router().Find(c.Request().Method, echo.GetPath(c.Request()), probe)
	return probe.Path() != ""
}
