package ops_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/run/ops"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := ops.Listen("listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func get(t *testing.T, addr net.Addr, path string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + addr.String() + path)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(body)
}

// A request that is under way when the server is told to stop gets its answer.
func TestServeFinishesWhatIsUnderWay(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-finish
		_, _ = io.WriteString(w, "done")
	})
	ctx, stop := context.WithCancel(t.Context())
	l := listen(t)
	ended, answered := make(chan error, 1), make(chan string, 1)
	go func() { ended <- ops.Serve(ctx, l, handler) }()
	go func() {
		_, body := get(t, l.Addr(), "/")
		answered <- body
	}()
	<-begun
	stop()
	for refused := false; !refused; { // the listener closes at once
		c, err := net.Dial("tcp", l.Addr().String())
		if refused = err != nil; !refused {
			_ = c.Close()
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("the server ended in the middle of a request: %v", err)
	default:
	}
	close(finish)
	if body := <-answered; body != "done" {
		t.Errorf("the answer is %q", body)
	}
	if err := <-ended; err != nil {
		t.Errorf("a stop is no error: %v", err)
	}
}

func TestServeTellsWhatBroke(t *testing.T) {
	l := listen(t)
	_ = l.Close()
	if err := ops.Serve(t.Context(), l, http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("%v", err)
	}
}

func TestListenNamesTheOption(t *testing.T) {
	l := listen(t)
	defer l.Close()
	if _, err := ops.Listen("metrics-listen", l.Addr().String()); err == nil || !strings.Contains(err.Error(), "--metrics-listen "+l.Addr().String()) {
		t.Errorf("%v", err)
	}
}

// Metrics and profiles are on a listener of their own, and health is on both: a probe has no client
// certificate.
func TestHealthAndMetrics(t *testing.T) {
	var ready atomic.Bool
	mux := http.NewServeMux()
	isReady := func() error {
		if !ready.Load() {
			return errors.New("not yet")
		}
		return nil
	}
	ops.Health(mux, isReady)
	ctx, stop := context.WithCancel(t.Context())
	public, private := listen(t), listen(t)
	ended := make(chan error, 2)
	go func() { ended <- ops.Serve(ctx, public, mux) }()
	go func() { ended <- ops.Serve(ctx, private, ops.MetricsHandler(ops.NewRegistry("test"), isReady)) }()

	want := func(l net.Listener, path string, status int, text string) {
		t.Helper()
		if got, body := get(t, l.Addr(), path); got != status || !strings.Contains(body, text) {
			t.Errorf("%s: %d %.200q, want %d %q", path, got, body, status, text)
		}
	}
	want(public, "/healthz", 200, "ok")
	want(public, "/readyz", 503, "not yet")
	want(private, "/readyz", 503, "not yet")
	ready.Store(true)
	want(public, "/readyz", 200, "ready")
	want(public, "/metrics", 404, "")
	want(public, "/debug/pprof/", 404, "")
	want(private, "/metrics", 200, `tallygate_build_info{commit="`)
	want(private, "/debug/pprof/goroutine?debug=1", 200, "goroutine profile")
	want(private, "/healthz", 200, "ok")
	want(private, "/readyz", 200, "ready")
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestUnlessEnded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	broken := errors.New("broken")
	if err := ops.IgnoreCanceled(ctx, broken); !errors.Is(err, broken) {
		t.Error("an error of what runs is lost")
	}
	cancel()
	if err := ops.IgnoreCanceled(ctx, broken); err != nil {
		t.Error("what was told to stop may say so")
	}
}

// What is not there was answered as text.
func TestTheMetricsPortAnswersWithProblems(t *testing.T) {
	h := ops.MetricsHandler(ops.NewRegistry("test"), func() error { return nil })
	for request, want := range map[string]int{"GET /nothing": 404, "POST /metrics": 405, "DELETE /healthz": 405, "GET /healthz": 200} {
		method, path, _ := strings.Cut(request, " ")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		if kind := w.Header().Get("Content-Type"); w.Code != want || want >= 400 && kind != "application/problem+json" {
			t.Errorf("%s: %d %s %s, want %d", request, w.Code, kind, w.Body, want)
		}
	}
}
