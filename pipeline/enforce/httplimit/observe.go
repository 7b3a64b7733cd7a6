package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/event"
)

// Passage is a request between Enter and Done, or Cancel.
type Passage struct {
	entered *entered
	held    enforce.Held // nil: nothing is held
	permit  event.Permit
}

// entered is what an event is made of after the response.
type entered struct {
	o     *Options
	r     *http.Request
	api   string // of the check and the event: a router may change what the name is made of
	began time.Time
	dims  []event.Dim
}

func newEntered(o *Options, r *http.Request, api string, dims []event.Dim) *entered {
	return &entered{o: o, r: r, api: api, began: time.Now(), dims: append([]event.Dim(nil), dims...)}
}

// Done emits the request's event, if the gate emits any. status is the response's; 0 is 200, as in
// net/http.
func (p Passage) Done(status int) { p.end(status, event.StatusOutcome(status)) }

func (p Passage) end(status int, outcome string) {
	if status == 0 {
		status = http.StatusOK
	}
	if p.entered == nil {
		if p.held != nil {
			p.held.Done(outcome)
		}
		return
	}
	o := p.entered.o
	e := EventOf(p.entered.api, p.entered.dims, p.entered.began, outcome,
		event.Attr{Name: attrStatus, Value: event.NumberValue(event.Decimal(status) * event.One)})
	e.Permit = p.permit
	emit := o.Event == nil || o.Event(p.entered.r, &e)
	if emit {
		o.Events.Emit(e)
	}
	switch {
	case p.held == nil:
	case emit:
		p.held.Done(e.Outcome)
	default:
		p.held.Cancel()
	}
}

// EventOf returns the event of a request that has ended: who sent it, what it did, when it began,
// how it ended, and how long it took (the attribute latency_ms). result is an attribute that says
// more of its end, such as the status. Its UID, IP and attributes are the dimensions that were
// checked.
func EventOf(api string, dims []event.Dim, began time.Time, outcome string, result event.Attr) event.Event {
	e := event.Event{
		API: api, Outcome: outcome, Time: event.FromTime(began), Cost: event.One,
		Attrs: make([]event.Attr, 0, len(dims)+2),
	}
	for _, d := range dims {
		switch d.Name {
		case dimUID:
			e.UID = d.Value
		case dimIP:
			if ip, err := netip.ParseAddr(d.Value); err == nil {
				e.IP = ip.Unmap().WithZone("")
			}
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

// statusWriter remembers the response's status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// result returns the status; a handler that panics before it responds has failed.
func (w *statusWriter) result(finished bool) int {
	if !finished && w.status == 0 {
		return http.StatusInternalServerError
	}
	return w.status
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= 200 { // a 1xx precedes the response, but for 101, which is final
		w.status = status
	} else if status == http.StatusSwitchingProtocols {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// ReadFrom lets the server's writer send a file without copying it.
func (w *statusWriter) ReadFrom(r io.Reader) (int64, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return io.Copy(w.ResponseWriter, r)
}

// Flush, Hijack and Unwrap are for handlers that stream or take the connection over.
func (w *statusWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Hijack is http.Hijacker's, when the server's writer is one.
func (w *statusWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
