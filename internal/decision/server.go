// Package decision is the decision server: one table, asked over HTTP by programs that don't
// link the enforcer, and by proxies.
package decision

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Bounds of what is read and answered.
const (
	MaxChecks   = 1000    // in one batch
	maxBody     = 1 << 20 // of a request
	maxPage     = 1000    // verdicts of one listing
	defaultPage = 100
)

// Config says what a Server answers from.
type Config struct {
	Table *enforce.Table // required

	// Headers in which a proxy names who asks and for what; "" is X-Tallygate-Uid and so on.
	// Attributes come as AttrPrefix followed by their name.
	UIDHeader, IPHeader, APIHeader, AttrPrefix string

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
	s := &Server{cfg: cfg, checks: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tallygate_checks_total", Help: "Checks, by what the answer was: allowed, or the action."}, []string{"result"})}
	s.allow = s.checks.WithLabelValues("allowed")
	if cfg.Registry == nil {
		return s, nil
	}
	err := errors.Join(
		cfg.Registry.Register(s.checks),
		cfg.Registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tallygate_blocklist_entries", Help: "Verdicts in the table."}, func() float64 { return float64(cfg.Table.Len()) })),
		cfg.Registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tallygate_blocklist_staleness_seconds", Help: "How far the table is behind the verdict topic."},
			func() float64 { return cfg.Table.Staleness().Seconds() })),
	)
	return s, err
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

// Check is a question: may whoever has these dimensions do this now?
type Check struct {
	UID   string           `json:"uid"`
	IP    string           `json:"ip"`
	API   string           `json:"api"`
	Attrs map[string]value `json:"attrs"`
}

// Answer is what a Check is answered with.
type Answer struct {
	Allowed    bool               `json:"allowed"`
	Action     string             `json:"action,omitempty"`
	Rule       string             `json:"rule,omitempty"`
	Until      string             `json:"until,omitempty"`
	RetryAfter int64              `json:"retry_after,omitempty"` // whole seconds, rounded up
	Verdicts   []*verdict.Verdict `json:"verdicts"`              // all in force, shadow ones too
	Staleness  string             `json:"staleness"`
}

func (s *Server) answer(c *Check) (Answer, error) {
	dims, err := c.dims()
	if err != nil {
		return Answer{}, err
	}
	d := s.decide(c.API, dims)
	a := Answer{Allowed: d.Allowed, Rule: d.Rule, RetryAfter: d.RetryAfter(),
		Verdicts: s.cfg.Table.Verdicts(c.API, dims), Staleness: s.cfg.Table.Staleness().Round(time.Millisecond).String()}
	if a.Verdicts == nil {
		a.Verdicts = []*verdict.Verdict{}
	}
	if d.Rule != "" {
		a.Action, a.Until = d.Action.String(), d.Until.String()
	}
	return a, nil
}

func (s *Server) decide(api string, dims []event.Dim) enforce.Decision {
	d := s.cfg.Table.CheckDims(api, dims)
	if d.Rule == "" {
		s.allow.Inc()
	} else {
		s.checks.WithLabelValues(d.Action.String()).Inc()
	}
	return d
}

func (s *Server) check(w http.ResponseWriter, r *http.Request) {
	var c Check
	if !read(w, r, &c) {
		return
	}
	a, err := s.answer(&c)
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	reply(w, a)
}

func (s *Server) batch(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Checks []Check `json:"checks"`
	}
	if !read(w, r, &in) {
		return
	}
	if len(in.Checks) > MaxChecks {
		problem(w, http.StatusBadRequest, fmt.Sprintf("%d checks, at most %d in one request", len(in.Checks), MaxChecks))
		return
	}
	out := struct {
		Results []Answer `json:"results"`
	}{make([]Answer, len(in.Checks))}
	for i := range in.Checks {
		a, err := s.answer(&in.Checks[i])
		if err != nil {
			problem(w, http.StatusBadRequest, fmt.Sprintf("checks[%d]: %v", i, err))
			return
		}
		out.Results[i] = a
	}
	reply(w, out)
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit := defaultPage
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPage {
			problem(w, http.StatusBadRequest, fmt.Sprintf("limit=%s: 1 to %d", text, maxPage))
			return
		}
		limit = n
	}
	page, next := s.cfg.Table.List(q.Get("prefix"), q.Get("cursor"), limit)
	if page == nil {
		page = []*verdict.Verdict{}
	}
	reply(w, struct {
		Verdicts []*verdict.Verdict `json:"verdicts"`
		Cursor   string             `json:"cursor,omitempty"` // of the next page
	}{page, next})
}

// read takes the JSON body, or answers what is wrong with it.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	err := dec.Decode(into)
	if err == nil && dec.Decode(&struct{}{}) != io.EOF {
		err = errors.New("more than one JSON value")
	}
	if err == nil {
		return true
	}
	status := http.StatusBadRequest
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		status = http.StatusRequestEntityTooLarge
	}
	problem(w, status, "the body: "+err.Error())
	return false
}

func reply(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // a client that went away is no error of ours
}

// problem answers with RFC 9457's problem+json.
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail,
	})
}
