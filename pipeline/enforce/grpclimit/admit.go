package grpclimit

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/gate"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

var permitMetadata = strings.ToLower(event.PermitHeader)

// call is one that was let in, until it has ended.
type call struct {
	l      *Limiter
	api    string
	dims   []event.Dim
	began  time.Time
	permit event.Permit
	held   enforce.Held         // nil: nothing is held
	notes  *enforce.NoteContext // the handler's; nil: nobody hears what it notes
}

// done ends the call: its event goes first, so that it is on its way when what was under way is given
// back.
func (c *call) done(err error) {
	if c.notes == nil {
		return
	}
	e := event.Event{Outcome: OutcomeOf(status.Code(err))}
	if c.l.o.Events != nil {
		e = c.event(e.Outcome, err)
	}
	if c.notes.Notes.Apply(&e); c.l.o.Events != nil {
		c.l.o.Events.Emit(e)
	}
	if c.held != nil {
		c.held.Done(e.Outcome)
	}
}

// event is the call's. err is how it ended.
func (c *call) event(outcome string, err error) event.Event {
	e := httplimit.EventOf(c.api, c.dims, c.began, outcome, event.Attr{Name: "code", Value: event.StringValue(status.Code(err).String())})
	e.Permit = c.permit
	return e
}

// limited emits the event of a call that is denied, if it is to have one. Whatever the code is, what a
// limit denied did not happen.
func (c *call) limited(q *gate.Request, err error) error {
	if c.l.door.Emits(q) {
		c.began = time.Now()
		c.l.o.Events.Emit(c.event(event.OutcomeLimited, err))
	}
	return err
}

// PermitOf returns the permit of a call, for handlers that emit their own events: each permit is for
// one event. It is the zero value for calls that need none.
func PermitOf(ctx context.Context) event.Permit {
	return httplimit.PermitOf(ctx)
}

// context is the handler's: with the permit, and with notes.
func (c *call) context(ctx context.Context) context.Context {
	ctx = httplimit.WithPermit(ctx, c.permit)
	if c.held == nil && c.l.o.Events == nil {
		return ctx
	}
	c.notes = &enforce.NoteContext{Context: ctx}
	return c.notes
}

// stream is the handler's: with its context.
func (c *call) stream(s grpc.ServerStream) grpc.ServerStream {
	ctx := c.context(s.Context())
	if ctx == s.Context() {
		return s
	}
	return &permitted{s, ctx}
}

// permitted is a stream with a permit, or with notes.
type permitted struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *permitted) Context() context.Context { return s.ctx }
