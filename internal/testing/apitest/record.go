package apitest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// Handler is next, and reports each answer that is not as described.
func (d *Document) Handler(t testing.TB, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := &recordedBody{ReadCloser: r.Body}
		if r.Body != nil {
			r.Body = asked
		}
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		header := answer.Result().Header
		if err := d.Check(r, asked.bytes(), answer.Code, header, answer.Body.Bytes()); err != nil {
			t.Errorf("%s %s is answered %d %.300s, by %s:\n%v", r.Method, r.URL, answer.Code, answer.Body, d.name, err)
		}
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	})
}

// recordedBody keeps what is read of a body. A transport may still read when an answer is there.
type recordedBody struct {
	io.ReadCloser
	mu   sync.Mutex
	read []byte
}

func (b *recordedBody) Read(p []byte) (n int, err error) {
	n, err = b.ReadCloser.Read(p)
	b.mu.Lock()
	b.read = append(b.read, p[:n]...)
	b.mu.Unlock()
	return n, err
}

func (b *recordedBody) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.read)
}

// Transport is next, and reports each answer that is not as described.
func (d *Document) Transport(t testing.TB, next http.RoundTripper) http.RoundTripper {
	return transport{d, t, next}
}

type transport struct {
	d    *Document
	t    testing.TB
	next http.RoundTripper
}

func (r transport) RoundTrip(req *http.Request) (*http.Response, error) {
	asked := &recordedBody{ReadCloser: req.Body}
	if req.Body != nil && req.Body != http.NoBody {
		req = req.Clone(req.Context())
		req.Body = asked
	}
	resp, err := r.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(answer))
	if err != nil {
		return resp, nil // the caller reads as much
	}
	if err := r.d.Check(req, asked.bytes(), resp.StatusCode, resp.Header, answer); err != nil {
		r.t.Errorf("%s %s is answered %d %.300s, by %s:\n%v", req.Method, req.URL, resp.StatusCode, answer, r.d.name, err)
	}
	return resp, nil
}

// CloseIdleConnections lets a client's do so.
func (r transport) CloseIdleConnections() {
	if c, ok := r.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
