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

// forHandler is the writer as the handler sees it: an http.Flusher where the one below can flush.
func (w *statusWriter) forHandler() http.ResponseWriter {
	if flushes(w.ResponseWriter) {
		return flushingWriter{w}
	}
	return w
}

// end ends the request. A handler that panics has failed, whatever status it has sent before; unless its client
// has left, which must not decide what counts: a proxy's handler panics when it can send no more.
func (w *statusWriter) end(p Passage, finished bool) {
	w.takeNote()
	if finished || w.status != 0 && p.left() {
		p.Done(w.status)
	} else {
		p.Failed(w.status)
	}
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

// Hijack is http.Hijacker's, where the server's writer is one. What the request holds is held until the
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

// flushingWriter is a statusWriter before a writer that can flush. A handler that looks for an http.Flusher is
// told by this one alone that there is one.
type flushingWriter struct{ *statusWriter }

// Flush sends what was written, for handlers that stream.
func (w flushingWriter) Flush() { _ = w.FlushError() }

// FlushError is Flush for http.ResponseController, with the error of the writer below.
func (w flushingWriter) FlushError() error {
	if w.status == 0 {
		w.takeNote()
		w.status = http.StatusOK // a flush sends the header
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// flushes reports whether http.ResponseController finds a writer that can flush.
func flushes(w http.ResponseWriter) bool {
	for {
		switch below := w.(type) {
		case interface{ FlushError() error }, http.Flusher:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = below.Unwrap()
		default:
			return false
		}
	}
}

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
