package enforce

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
)

// ownAttrs are the attributes that a gate gives to events by itself.
var ownAttrs = [...]string{"status", "latency_ms"}

// Passage is a request between Enter and Done.
type Passage struct{ entered *entered }

// entered is what an event is made of when the request is answered.
type entered struct {
	gate  *Gate
	r     *http.Request
	api   string // of the check and of the event: a router may change what names the request
	began time.Time
	dims  []event.Dim
}

func (g *Gate) passage(r *http.Request, api string, dims []event.Dim) *entered {
	return &entered{gate: g, r: r, api: api, began: time.Now(), dims: append([]event.Dim(nil), dims...)}
}

// Done emits the request's event, if the Gate emits. status is that of the answer; 0 is 200, as net/http has it.
func (p Passage) Done(status int) {
	if p.entered == nil {
		return
	}
	if status == 0 {
		status = http.StatusOK
	}
	g, latency := p.entered.gate, time.Since(p.entered.began)
	e := event.Event{
		API: p.entered.api, Outcome: OutcomeOf(status), Time: event.FromTime(p.entered.began), Cost: event.One,
		Attrs: make([]event.Attr, 0, len(p.entered.dims)+2),
	}
	for _, d := range p.entered.dims {
		switch d.Name {
		case dimUID:
			e.UID = d.Value
		case dimIP:
			if ip, err := netip.ParseAddr(d.Value); err == nil {
				e.IP = ip.Unmap().WithZone("")
			}
		default:
			e.Attrs = append(e.Attrs, event.Attr{Name: d.Name[len("attrs."):], Value: event.StringValue(d.Value)})
		}
	}
	e.Attrs = append(e.Attrs,
		event.Attr{Name: ownAttrs[0], Value: event.NumberValue(event.Decimal(status) * event.One)},
		event.Attr{Name: ownAttrs[1], Value: event.NumberValue(event.Decimal(latency.Microseconds()) * event.One / 1000)})
	if g.o.Event == nil || g.o.Event(p.entered.r, &e) {
		g.o.Events.Emit(e)
	}
}

// OutcomeOf is how a status ends: success below 400, denied for 401, 403 and 429, failure otherwise, as in events made from
// access logs.
func OutcomeOf(status int) string {
	switch {
	case status < 400:
		return "success"
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusTooManyRequests:
		return "denied"
	}
	return "failure"
}

// statusWriter remembers the answer's status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// result returns the status; a handler that panicked before it answered has failed.
func (w *statusWriter) result(finished bool) int {
	if !finished && w.status == 0 {
		return http.StatusInternalServerError
	}
	return w.status
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= 200 { // 1xx are not the answer, but for 101, behind which there is none
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

// ReadFrom keeps what the server's own writer can do: send a file without copying it.
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
