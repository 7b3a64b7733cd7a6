package httplimit

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/tallygate/tallygate/pipeline/enforce"
)

// statusWriter remembers the response's status.
type statusWriter struct {
	http.ResponseWriter
	status int
	noted  Passage // gets what the response notes by a header
	holds  bool    // the request holds a permit
	taken  *takenConn
}

// result returns the status; a handler that panics before it responds has failed.
func (w *statusWriter) result(finished bool) int {
	w.takeNote()
	if !finished && w.status == 0 {
		return http.StatusInternalServerError
	}
	return w.status
}

// takeNote takes the header enforce.NoteHeader out of a response before it is sent.
func (w *statusWriter) takeNote() {
	if w.noted.entered != nil {
		w.noted.TakeNote(w.Header())
	}
}

// TakeNote takes the header enforce.NoteHeader out of a response that is about to be sent, and notes what it
// says, if the gate reads that header. Adapters of routers call it; Handler does by itself.
func (p Passage) TakeNote(h http.Header) {
	if p.entered == nil || !p.entered.g.o.NoteHeader {
		return
	}
	if values, there := h[enforce.NoteHeader]; there {
		delete(h, enforce.NoteHeader)
		p.entered.Notes.Add(p.entered.g.responses.Notes(values...)...)
	}
}

func (w *statusWriter) WriteHeader(status int) {
	w.takeNote()
	if w.status == 0 && status >= 200 { // a 1xx precedes the response, but for 101, which is final
		w.status = status
	} else if status == http.StatusSwitchingProtocols {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(b)
}

// ReadFrom lets the server's writer send a file without copying it.
func (w *statusWriter) ReadFrom(r io.Reader) (int64, error) {
	w.begin()
	return io.Copy(w.ResponseWriter, r)
}

// begin is before what sends the header without a WriteHeader.
func (w *statusWriter) begin() {
	if w.status == 0 {
		w.takeNote()
		w.status = http.StatusOK
	}
}

// Flush, Hijack and Unwrap are for handlers that stream or take the connection over.
func (w *statusWriter) Flush() {
	if w.status == 0 {
		w.takeNote()
	}
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack is http.Hijacker's, when the server's writer is one. What the request holds is held until the
// connection is closed, too: handlers hand it to a goroutine, and return.
func (w *statusWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil || !w.holds {
		return conn, buffered, err
	}
	w.taken = &takenConn{Conn: conn}
	if half, ok := conn.(closesWriting); ok {
		return &takenDuplex{w.taken, half}, buffered, nil
	}
	return w.taken, buffered, nil
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Responses reads what responses note by a header. The zero value is ready, and its methods may be called by
// many goroutines. It is for adapters of routers.
type Responses struct{ wrong sync.Once }

// Notes returns what a response notes by all values that it has of the header enforce.NoteHeader. What is no
// note is ignored, and logged once: the event is emitted without it.
func (r *Responses) Notes(values ...string) []enforce.Noted {
	notes, err := enforce.ParseNote(values...)
	if err != nil {
		r.wrong.Do(func() {
			slog.Warn("a response notes what cannot be read, and its event is emitted without it; further ones are not logged: write a dictionary such as outcome=failure, cost=2, attrs.plan=\"pro\"",
				"header", enforce.NoteHeader, "error", err)
		})
	}
	return notes
}
