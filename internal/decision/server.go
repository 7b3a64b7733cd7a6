// Package decision is the decision server: one table, asked over HTTP by programs that don't
// link the enforcer, and by proxies.
package decision

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/pipeline/enforce"
)

// Config says what a Server answers from.
type Config struct {
	Table *enforce.Table // required

	// Headers in which a proxy names who asks and for what; "" is X-Tallygate-Uid and so on.
	// Attributes come as AttrPrefix followed by their name, and are in lower case.
	UIDHeader, IPHeader, APIHeader, AttrPrefix string

	// Headers with the original request's method and path, from which the API is made when
	// APIHeader is absent; "" looks for those that proxies use: see forwardAuth.
	MethodHeader, PathHeader string

	// AllowStatus is what forward-auth answers to let a request through: 204 (also 0) or
	// 200, for proxies that want exactly that.
	AllowStatus int

	// MaxStaleness is how far behind the blocklist may be while the server calls itself
	// ready; 0 is 10 s. Checks are answered from what is known either way.
	MaxStaleness time.Duration

	Registry prometheus.Registerer // nil registers no metrics
}

// Server answers checks. Make it with New.
type Server struct {
	cfg    Config
	checks *prometheus.CounterVec
	allow  prometheus.Counter
}

// New checks cfg.
func New(cfg Config) (*Server, error) {
	cfg.UIDHeader = cmp.Or(cfg.UIDHeader, "X-Tallygate-Uid")
	cfg.IPHeader = cmp.Or(cfg.IPHeader, "X-Tallygate-Ip")
	cfg.APIHeader = cmp.Or(cfg.APIHeader, "X-Tallygate-Api")
	cfg.AttrPrefix = http.CanonicalHeaderKey(cmp.Or(cfg.AttrPrefix, "X-Tallygate-Attr-"))
	cfg.AllowStatus = cmp.Or(cfg.AllowStatus, http.StatusNoContent)
	cfg.MaxStaleness = cmp.Or(cfg.MaxStaleness, 10*time.Second)
	if cfg.Table == nil {
		return nil, errors.New("decision: Table is required")
	}
	if cfg.AllowStatus != http.StatusNoContent && cfg.AllowStatus != http.StatusOK {
		return nil, fmt.Errorf("decision: forward-auth lets through with 200 or 204, not %d", cfg.AllowStatus)
	}
	if cfg.MaxStaleness < 0 {
		return nil, fmt.Errorf("decision: MaxStaleness is %v, want 0 or more", cfg.MaxStaleness)
	}
	s := &Server{cfg: cfg, checks: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tallygate_checks_total", Help: "Checks, by what the answer was: allowed, or the action."}, []string{"result"})}
	s.allow = s.checks.WithLabelValues("allowed")
	return s, s.register(cfg.Registry)
}

func (s *Server) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	table := s.cfg.Table
	gauge := func(name, help string, value func() float64) error {
		return reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	return errors.Join(
		reg.Register(s.checks),
		gauge("tallygate_blocklist_entries", "Verdicts in the table.",
			func() float64 { return float64(table.Len()) }),
		gauge("tallygate_blocklist_staleness_seconds", "How far the table is behind the verdict topic.",
			func() float64 { return table.Staleness().Seconds() }),
	)
}

// Ready returns nil when the table has had its first snapshot and is not staler than allowed.
func (s *Server) Ready() error {
	if !s.cfg.Table.Ready() {
		return errors.New("the blocklist has not been read yet")
	}
	if d := s.cfg.Table.Staleness(); d > s.cfg.MaxStaleness {
		return fmt.Errorf("the blocklist is %v behind, more than %v", d.Round(time.Millisecond), s.cfg.MaxStaleness)
	}
	return nil
}

// Routes adds the public API.
func (s *Server) Routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/check", s.check)
	mux.HandleFunc("POST /v1/check/batch", s.batch)
	mux.HandleFunc("/v1/forward-auth", s.forwardAuth)
	mux.HandleFunc("GET /v1/blocklist", s.list)
}
