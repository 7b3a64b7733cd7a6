package ops

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/internal/base/httpjson"
)

// drainWithin bounds requests under way once the process was told to stop.
const drainWithin = 10 * time.Second

// Serve answers on l until ctx ends, then lets current requests finish, for ten seconds. tune
// changes the server before it starts.
func Serve(ctx context.Context, l net.Listener, h http.Handler, tune ...func(*http.Server)) error {
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
	}
	for _, change := range append(tune, tellPlaces) {
		change(s)
	}
	drained := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		dctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainWithin)
		defer cancel()
		if s.Shutdown(dctx) != nil {
			_ = s.Close() // longer requests are cut off
		}
	})
	if err := s.Serve(refusals{l}); stop() {
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	}
	<-drained
	return nil
}

// MetricsHandler serves /metrics, Go's profiles, and the same Health as the API's listener: for a
// listener that the public does not reach. A probe asks there where the API's listener wants a
// client certificate.
func MetricsHandler(reg *prometheus.Registry, ready func() error, but ...func() error) http.Handler {
	mux := http.NewServeMux()
	Health(mux, ready, but...)
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg, EnableOpenMetrics: true}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	httpjson.Fallback(mux)
	return mux
}

// Health answers /healthz always, and /readyz by what ready returns. There a ready program also
// reports the error of but.
func Health(mux *http.ServeMux, ready func() error, but ...func() error) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ready\n"))
		for _, wrong := range but {
			if err := wrong(); err != nil {
				_, _ = fmt.Fprintf(w, "but %v\n", err)
			}
		}
	})
}

// Describe answers /openapi.json with one of the documents of docs/api, in one piece. It is no secret:
// nobody needs a credential.
func Describe(mux *http.ServeMux, document string) {
	text := sync.OnceValues(func() ([]byte, error) { return apidocs.Bundle(document) })
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		body, err := text()
		if err != nil { // a test has shown that there is none
			httpjson.Problem(w, http.StatusInternalServerError, err.Error())
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	})
}

// Public bounds how long an answer may take: a client that does not read must not hold a
// connection. Profiles and other long answers need more.
func Public(s *http.Server) { s.WriteTimeout = 30 * time.Second }
