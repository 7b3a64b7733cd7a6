// Package tallygate puts a table in front of gin's handlers.
package tallygate

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

type contextKey struct{}

// Middleware lets requests through to the next handlers unless a verdict denies them. Options.API is TemplateAPI unless
// it is set. What earlier handlers have put into gin's context is there for Value. With Options.Admit handlers find their
// permit by httplimit.PermitOf(c.Request.Context()). enforce.Note(c.Request.Context(), …) adds to the event of Options.Events.
func Middleware(table *enforce.Table, options httplimit.Options) (gin.HandlerFunc, error) {
	if options.API == nil {
		options.API = TemplateAPI
	}
	gate, err := httplimit.NewGate(table, options)
	if err != nil {
		return nil, err
	}
	return func(c *gin.Context) {
		original := c.Request
		passage, ok := gate.Enter(c.Writer, original.WithContext(context.WithValue(original.Context(), contextKey{}, c)))
		if !ok {
			c.Abort()
			return
		}
		c.Request = passage.Request(original)
		if options.NoteHeader {
			c.Writer = &noted{c.Writer, passage}
		}
		finished := false
		defer func() { // also when a handler panics
			passage.TakeNote(c.Writer.Header()) // gin sends the header of a response without a body later
			switch {
			case finished:
				passage.Done(c.Writer.Status())
			case c.Writer.Written(): // whatever it has sent, it has failed
				passage.Failed(c.Writer.Status())
			default:
				passage.Failed(0)
			}
		}()
		c.Next()
		finished = true
	}, nil
}

// noted takes what a response notes out of it before it is sent.
type noted struct {
	gin.ResponseWriter
	passage httplimit.Passage
}

func (w *noted) WriteHeaderNow() { w.take(); w.ResponseWriter.WriteHeaderNow() }

func (w *noted) Write(b []byte) (int, error) { w.take(); return w.ResponseWriter.Write(b) }

func (w *noted) WriteString(s string) (int, error) { w.take(); return w.ResponseWriter.WriteString(s) }

func (w *noted) Flush() { _ = w.FlushError() }

// FlushError is for http.ResponseController: gin's own Flush panics where the writer below cannot flush.
func (w *noted) FlushError() error {
	w.WriteHeaderNow()
	return http.NewResponseController(w.below()).Flush()
}

// Unwrap is for http.ResponseController.
func (w *noted) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// below is the writer around which gin's is.
func (w *noted) below() http.ResponseWriter {
	if of, ok := w.ResponseWriter.(interface{ Unwrap() http.ResponseWriter }); ok {
		return of.Unwrap()
	}
	return w.ResponseWriter
}

func (w *noted) take() {
	if !w.Written() {
		w.passage.TakeNote(w.Header())
	}
}

// Value returns what an earlier handler has put into gin's context with Set; "" when it is no string.
func Value(key string) func(*http.Request) string {
	return httplimit.Context(contextKey{}, func(c *gin.Context) string { return c.GetString(key) })
}

// TemplateAPI names an API by its route: GET /orders/:id is get.orders.id. A request that no route takes is httplimit.Unrouted.
func TemplateAPI(r *http.Request) string {
	c, ok := r.Context().Value(contextKey{}).(*gin.Context)
	switch {
	case !ok:
		return httplimit.RouteAPI(r)
	case c.FullPath() == "":
		return httplimit.Unrouted
	}
	return httplimit.TemplateAPI(r.Method, c.FullPath())
}
