package httplimit

import (
	"net/http"
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

// Passage is a request between Enter and Done, or Cancel.
type Passage struct {
	entered *entered     // nil: nothing comes after the response
	held    enforce.Held // nil: nothing is held
	permit  event.Permit
}

// entered is a request's state until its response: the parts of its event, and its handler's context. All of it is
// one allocation.
type entered struct {
	enforce.NoteContext // the handler's
	permit              event.Permit

	g      *Gate
	r      *http.Request // as Options.Event sees it
	api    string        // of the check and the event: a router may change what the name is made of
	began  time.Time
	dims   []event.Dim
	writer statusWriter
	inside http.Request  // the handler's
	around *http.Request // that it was made of; nil: it was not made
}

func newEntered(g *Gate, r *http.Request, api string, dims []event.Dim) *entered {
	return &entered{g: g, r: r, api: api, began: time.Now(), dims: append([]event.Dim(nil), dims...)}
}

// Value finds the request's permit, and what notes are for.
func (e *entered) Value(key any) any {
	if key == (permitKey{}) && e.permit.ID != "" {
		return e.permit
	}
	return e.NoteContext.Value(key)
}

// Request is the request for the handler: with its permit, and with a context for enforce.Note. Adapters of
// routers pass it on.
func (p Passage) Request(r *http.Request) *http.Request {
	e := p.entered
	if e == nil {
		return r
	}
	e.Context, e.permit, e.around = r.Context(), p.permit, r
	e.inside = *r.WithContext(e)
	return &e.inside
}

// writer is the response writer for the handler: it keeps the status, and takes the header
// enforce.NoteHeader out of the response if the gate is to read it.
func (p Passage) writer(w http.ResponseWriter) *statusWriter {
	sw := &p.entered.writer
	sw.ResponseWriter, sw.holds = w, p.held != nil
	if p.entered.g.o.NoteHeader {
		sw.noted = p
	}
	return sw
}

// leave tells the request around the handler's what was found out inside: middleware reads the route there,
// and the server removes a form's files.
func (e *entered) leave() {
	if r := e.around; r != nil {
		r.Pattern, r.Form, r.PostForm, r.MultipartForm = e.inside.Pattern, e.inside.Form, e.inside.PostForm, e.inside.MultipartForm
	}
}

// Done emits the request's event, if the gate emits any. status is the response's; 0 is 200, as in
// net/http.
func (p Passage) Done(status int) { p.end(status, event.StatusOutcome(status)) }

// Failed emits the event of a request whose handler has panicked: its outcome is failure, whatever status it
// has sent before. 0 is none, and the status is 500 then.
func (p Passage) Failed(status int) {
	if status == 0 {
		status = http.StatusInternalServerError
	}
	p.end(status, event.OutcomeFailure)
}

// left reports whether the client has left.
func (p Passage) left() bool {
	r := p.entered.around
	return r != nil && r.Context().Err() != nil
}

func (p Passage) end(status int, outcome string) {
	if p.entered == nil {
		return
	}
	if status == 0 {
		status = http.StatusOK
	}
	p.entered.leave()
	e, emit := p.entered.event(status, outcome, p.permit), true
	if o := &p.entered.g.o; o.Events != nil {
		if emit = o.Event == nil || o.Event(p.entered.r, &e); emit {
			o.Events.Emit(e)
		}
	}
	if p.held == nil {
		return
	}
	end := func() { p.held.Done(e.Outcome) }
	if !emit {
		end = p.held.Cancel
	}
	if taken := p.entered.writer.taken; taken != nil {
		taken.whenClosed(end)
		return
	}
	end()
}

// event makes the event to emit, with the handler's notes.
func (e *entered) event(status int, outcome string, permit event.Permit) event.Event {
	out := event.Event{Outcome: outcome}
	if e.g.o.Events != nil {
		out = EventOf(e.api, e.dims, e.began, outcome, event.Attr{Name: attrStatus, Value: event.NumberValue(event.Decimal(status) * event.One)})
		out.Permit = permit
		if e.g.o.Trace {
			out.Trace, _ = event.ParseTrace(e.r.Header.Get(event.HeaderTrace))
		}
	}
	e.Notes.Apply(&out)
	return out
}

// EventOf returns the event of a request that has ended: who sent it, what it did, when it began,
// how it ended, and how long it took (the attribute latency_ms). result is an attribute that says
// more of its end, such as the status. Its UID, IP and attributes are the dimensions that were
// checked.
func EventOf(api string, dims []event.Dim, began time.Time, outcome string, result event.Attr) event.Event {
	e := event.Event{
		API: api, Outcome: outcome, Time: event.FromTime(began), BrokerTime: event.NoTime, Cost: event.One,
		Attrs: make([]event.Attr, 0, len(dims)+2),
	}
	for _, d := range dims {
		switch d.Name {
		case dimUID:
			e.UID = d.Value
		case dimIP:
			e.IP, _ = event.ParseAddress(d.Value)
		default:
			e.Attrs = append(e.Attrs, event.Attr{Name: strings.TrimPrefix(d.Name, "attrs."), Value: event.StringValue(d.Value)})
		}
	}
	latency := event.Decimal(time.Since(began).Microseconds()) * event.One / 1000
	e.Attrs = append(e.Attrs, result, event.Attr{Name: attrLatency, Value: event.NumberValue(latency)})
	return e
}

// OutcomeOf is the outcome of a status: success below 400, denied for 401 and 403, limited for 429,
// failure otherwise. Events made from access logs have the same outcomes.
func OutcomeOf(status int) string { return event.StatusOutcome(status) }
