package httplimit

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A download that broke off behind its 200 counted as a success.
func TestAPanicBehindAStatusIsAFailure(t *testing.T) {
	for _, c := range []struct {
		about   string
		handle  func(w http.ResponseWriter)
		leaves  bool
		outcome string
		status  string
	}{
		{"before a status", func(http.ResponseWriter) {}, false, "failure", "500"},
		{"behind 200", func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) }, false, "failure", "200"},
		{"behind a part of the body", func(w http.ResponseWriter) { _, _ = w.Write([]byte("x")) }, false, "failure", "200"},
		{"behind a flush", func(w http.ResponseWriter) { w.(http.Flusher).Flush() }, false, "failure", "200"},
		{"behind 401", func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }, false, "failure", "401"},
		{"as the client has left", func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) }, true, "success", "200"},
	} {
		var sent events
		ctx, leave := context.WithCancel(t.Context())
		handler := Middleware(newTable(t), Options{UID: byHeader, Events: &sent})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c.handle(w)
			if c.leaves {
				leave()
			}
			panic(http.ErrAbortHandler)
		}))
		func() {
			defer func() { _ = recover() }()
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			t.Errorf("%s: the panic is kept back", c.about)
		}()
		leave()
		if len(sent) != 1 {
			t.Fatalf("%s: %d events", c.about, len(sent))
		}
		if status, _ := sent[0].Attr("status"); sent[0].Outcome != c.outcome || status.Text != c.status {
			t.Errorf("%s: %s with status %s, want %s with %s", c.about, sent[0].Outcome, status.Text, c.outcome, c.status)
		}
	}
}

// plainWriter can nothing but write.
type plainWriter struct{ http.ResponseWriter }

// failingWriter has lost its connection.
type failingWriter struct {
	http.ResponseWriter
	err error
}

func (w failingWriter) FlushError() error { return w.err }

func (w failingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, w.err }

// oldWriter flushes as writers did before there were errors of it.
type oldWriter struct {
	http.ResponseWriter
	flushed *int
}

func (w oldWriter) Flush() { *w.flushed++ }

// wrapping is middleware of others.
type wrapping struct{ http.ResponseWriter }

func (w wrapping) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A handler that streams was told that all is well, by a writer that cannot flush, or whose connection is gone.
func TestFlushSaysWhatTheWriterBelowSays(t *testing.T) {
	gone, flushed := errors.New("the connection is gone"), 0
	for about, c := range map[string]struct {
		below   func(http.ResponseWriter) http.ResponseWriter
		flusher bool
		err     error
	}{
		"none":          {func(w http.ResponseWriter) http.ResponseWriter { return plainWriter{w} }, false, http.ErrNotSupported},
		"none, wrapped": {func(w http.ResponseWriter) http.ResponseWriter { return wrapping{plainWriter{w}} }, false, http.ErrNotSupported},
		"fails":         {func(w http.ResponseWriter) http.ResponseWriter { return failingWriter{w, gone} }, true, gone},
		"fails below":   {func(w http.ResponseWriter) http.ResponseWriter { return wrapping{failingWriter{w, gone}} }, true, gone},
		"old":           {func(w http.ResponseWriter) http.ResponseWriter { return oldWriter{w, &flushed} }, true, nil},
		"the server's":  {func(w http.ResponseWriter) http.ResponseWriter { return w }, true, nil},
	} {
		for _, noting := range []bool{false, true} {
			var sent events
			handler := Middleware(newTable(t), Options{UID: byHeader, Events: &sent, NoteHeader: noting})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if _, is := w.(http.Flusher); is != c.flusher {
					t.Errorf("%s: it is an http.Flusher: %v", about, is)
				}
				if err := http.NewResponseController(w).Flush(); !errors.Is(err, c.err) {
					t.Errorf("%s: flush: %v, want %v", about, err, c.err)
				}
				if _, _, err := http.NewResponseController(w).Hijack(); err == nil {
					t.Errorf("%s: it can be hijacked", about)
				}
			}))
			handler.ServeHTTP(c.below(httptest.NewRecorder()), httptest.NewRequest(http.MethodGet, "/", nil))
			if len(sent) != 1 || sent[0].Outcome != "success" {
				t.Errorf("%s: %+v", about, sent)
			}
		}
	}
	if flushed != 2 {
		t.Errorf("flushed %d times", flushed)
	}
}
