// Package decision is the decision server: one table, asked over HTTP and gRPC by proxies and by
// programs that do not link the enforcer.
package decision

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/envoylimit"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
)

// Config configures a Server.
type Config struct {
	Table *enforce.Table // required

	Headers forwardauth.Headers // in which a proxy names the caller and the API
	Entries map[string]string   // the meaning of rate limit descriptors: see envoylimit.Config

	// AllowStatus is the status with which forward-auth lets a request through: 204 (also 0), or
	// 200 for proxies that require exactly that.
	AllowStatus int

	// RequireDimensions refuses checks without any dimension: only verdicts on an API or on all could deny them.
	RequireDimensions bool

	// Answers configures responses to denied requests of proxies. The zero value is ready to use.
	Answers enforce.Answers

	// MaxStaleness is that of Table: its greatest delay behind the blocklist before it is stale. 0 is that of
	// enforce.Config. The server is ready either way.
	MaxStaleness time.Duration

	// MaxWait is the longest time that a check of POST /v1/check waits for its turn if it is
	// throttled, whatever it asks for; 0: none waits. It is at most 10 s: so long checks may take
	// when the program is told to stop.
	MaxWait time.Duration
	// MaxWaiting bounds the checks that wait at once; 0 is 1,000. MaxWaitingPerKey is how many of them may wait for
	// one key and rule; 0 is 100.
	MaxWaiting, MaxWaitingPerKey int

	// Refused returns why the blocklist in Redis cannot be followed, such as another number of
	// shards. The server is then not ready. nil, or returning nil, means that it can be followed.
	Refused func() error

	// Guard admits callers that may list the blocklist: viewers. nil admits every caller: use it only
	// for servers that are not reachable from outside.
	Guard *access.Guard
	// NoList serves no GET /v1/blocklist at all.
	NoList bool

	// Admit asks for permits, for POST /v1/admit; nil serves none. Its callers need the role service.
	Admit *admit.Admitter
	// AdmitProxies asks for permits for the requests of proxies, too. EmitAdmitted ends these at once:
	// Admit then emits their events.
	AdmitProxies, EmitAdmitted bool

	// Denied, if set, gets events of some requests that proxies are told to deny, with the outcome limited: see
	// enforce.Denials.
	Denied admit.Emitter

	// Usage marks rate limit descriptors that report what has happened: see envoylimit.Usage. Reported is filled in.
	Usage envoylimit.Usage

	Registry prometheus.Registerer // nil registers no metrics
}

// Server answers checks. Make it with New.
type Server struct {
	cfg      Config
	proxy    *forwardauth.Handler
	throttle *enforce.Throttle
	envoy    *envoylimit.Server
	checks   *prometheus.CounterVec
	allow    prometheus.Counter
	rules    *prometheus.CounterVec
	stale    prometheus.Counter
	lists    chan struct{} // one for each page of the blocklist that is being made
	waiting  chan struct{} // one for each request for a permit that may wait for its turn
	took     prometheus.Histogram

	noDims  prometheus.Counter
	refused *prometheus.CounterVec
	denials *enforce.Denials
	reports *usageReports

	all, denied atomic.Uint64 // checks
}

// Checks returns how many checks were answered, and how many of them were denied.
func (s *Server) Checks() (all, denied uint64) { return s.all.Load(), s.denied.Load() }

// New checks cfg.
func New(cfg Config) (*Server, error) {
	if cfg.Table == nil {
		return nil, errors.New("decision: Table is required")
	}
	if cfg.MaxStaleness < 0 {
		return nil, fmt.Errorf("decision: MaxStaleness is %v, want 0 or more", cfg.MaxStaleness)
	}
	throttle, err := cfg.throttle()
	if err != nil {
		return nil, err
	}
	s := &Server{throttle: throttle, cfg: cfg, denials: enforce.NewDenials(), checks: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tallygate_checks_total", Help: "Checks by result: allowed, the action, or unavailable."}, []string{"result"})}
	s.lists = make(chan struct{}, maxLists)
	s.waiting = make(chan struct{}, cmp.Or(cfg.MaxWaiting, 1000))
	s.allow = s.checks.WithLabelValues("allowed")
	s.rules = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tallygate_rule_checks_total", Help: "Checks decided by a rule's verdict, or by its local limit while the table is stale."}, []string{"rule", "action"})
	s.stale = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tallygate_checks_in_doubt_total", Help: "Checks answered while the table was stale."})
	s.noDims = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tallygate_checks_without_dimensions_total", Help: "Checks without any dimension: no uid, no address, no attribute."})
	s.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tallygate_checks_refused_total", Help: "Checks denied because the caller or the API is ambiguous, by reason."}, []string{"reason"})
	s.took, s.reports = newTook(), newReports()
	cfg.Usage.Reported = s.reports.reported
	headers := cfg.Headers.WithDefaults() // once: both would log the same hint about proxies
	var envoyErr error
	s.proxy, err = forwardauth.New(forwardauth.Config{Decider: s, Headers: headers, Answers: cfg.Answers, AllowStatus: cfg.AllowStatus,
		RequireDimensions: cfg.RequireDimensions, Refused: s.countRefused, Admit: s.forProxies(), EmitAdmitted: cfg.EmitAdmitted})
	s.envoy, envoyErr = envoylimit.New(envoylimit.Config{Decider: s, Headers: headers, Answers: cfg.Answers, Entries: cfg.Entries,
		Usage: cfg.Usage, Quiet: cfg.Table,
		RequireDimensions: cfg.RequireDimensions, Refused: s.countRefused, Admit: s.forProxies(), EmitAdmitted: cfg.EmitAdmitted})
	if err := errors.Join(err, envoyErr); err != nil {
		return nil, err
	}
	return s, s.register(cfg.Registry)
}

// throttle makes checks wait.
func (c *Config) throttle() (*enforce.Throttle, error) {
	const longest = 10 * time.Second
	if c.MaxWait < 0 || c.MaxWait > longest {
		return nil, fmt.Errorf("decision: MaxWait is %v, want 0 to %v", c.MaxWait, longest)
	}
	if c.MaxWaiting < 0 || c.MaxWaitingPerKey < 0 {
		return nil, fmt.Errorf("decision: MaxWaiting is %d and MaxWaitingPerKey %d, want none negative", c.MaxWaiting, c.MaxWaitingPerKey)
	}
	return enforce.NewThrottleWith(c.Table, enforce.ThrottleConfig{MaxDelay: cmp.Or(c.MaxWait, -1), MaxDelayed: c.MaxWaiting, MaxDelayedPerKey: c.MaxWaitingPerKey})
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
		s.registerWaits(reg),
		s.registerAdmits(reg),
		reg.Register(s.checks), reg.Register(s.rules), reg.Register(s.stale), reg.Register(s.noDims), reg.Register(s.refused),
		s.reports.register(reg, s.cfg.Usage.On()),
		gauge("tallygate_enforcement_enabled", "1 normally, 0 while a kill switch allows everything.",
			func() float64 { return number(table.Enabled()) }),
		gauge("tallygate_in_doubt", "1 while the table is stale: before the first snapshot, or too far behind; else 0.",
			func() float64 { return number(table.Stale()) }),
		reg.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "tallygate_in_doubt_seconds_total", Help: "Time during which the table was stale."},
			func() float64 { return table.StaleTime().Seconds() })),
		reg.Register(&latencies{table, prometheus.NewDesc("tallygate_event_to_enforced_seconds", "Seconds from an event until the block that it triggered is in force here.", nil, nil)}),
		reg.Register(&ruleMetrics{table}),
		gauge("tallygate_quota_entries", "Keys and limits of which the table knows what is left.",
			func() float64 { entries, _ := table.Quotas(); return float64(entries) }),
		gauge("tallygate_blocklist_staleness_seconds", "How far the table is behind the verdict topic, in seconds.",
			func() float64 { return table.Staleness().Seconds() }),
	)
}

// registerWaits registers what becomes of throttled checks.
func (s *Server) registerWaits(reg prometheus.Registerer) error {
	errs := []error{reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tallygate_checks_waiting", Help: "Throttled checks that wait for their turn."},
		func() float64 { return float64(s.throttle.Stats().Waiting) }))}
	for result, count := range map[string]func(enforce.ThrottleStats) uint64{
		"released":    func(t enforce.ThrottleStats) uint64 { return t.Released },
		"gave_up":     func(t enforce.ThrottleStats) uint64 { return t.GaveUp },
		"turned_away": func(t enforce.ThrottleStats) uint64 { return t.TurnedAway },
	} {
		errs = append(errs, reg.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "tallygate_checks_waited_total", Help: "Throttled checks that could wait, by what became of them: released, gave_up, or turned_away at once.",
			ConstLabels: prometheus.Labels{"result": result},
		}, func() float64 { return float64(count(s.throttle.Stats())) })))
	}
	return errors.Join(errs...)
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// CheckDims is the one decision that all protocols of proxies answer with.
func (s *Server) CheckDims(api string, dims []event.Dim) enforce.Decision {
	d := s.cfg.Table.CheckDims(api, dims)
	s.count(d, dims)
	if !d.Allowed {
		s.tells(api, dims)
	}
	return d
}

// count counts a check.
func (s *Server) count(d enforce.Decision, dims []event.Dim) {
	s.all.Add(1)
	if !d.Allowed {
		s.denied.Add(1)
	}
	if len(dims) == 0 {
		s.noDims.Inc()
	}
	if s.cfg.Table.Stale() {
		s.stale.Inc()
	}
	switch {
	case d.Unavailable():
		s.checks.WithLabelValues("unavailable").Inc()
	case d.Rule() == "":
		s.allow.Inc()
	default:
		action := d.Action().String()
		s.checks.WithLabelValues(action).Inc()
		s.rules.WithLabelValues(d.Rule(), action).Inc()
	}
}

// countRefused counts a check that led to no decision.
func (s *Server) countRefused(r *forwardauth.Refusal) {
	if r.Reason == forwardauth.NoDimensions {
		s.noDims.Inc()
	}
	s.refused.WithLabelValues(string(r.Reason)).Inc()
}

// Ready returns nil once the first question gets a real answer: the table has had its first snapshot, however long
// ago, and the rules are known that permits are asked for by. The server enforces what it has. Its staleness is a metric, and Config.OnStale of the table decides its
// answers then. If every enforcer became unready because an aggregator or Redis is away, all
// services behind them would fail, too.
func (s *Server) Ready() error {
	if s.cfg.Refused != nil {
		if err := s.cfg.Refused(); err != nil {
			return err
		}
	}
	if !s.cfg.Table.Ready() {
		return errors.New("the blocklist has not been read yet")
	}
	if s.cfg.Admit != nil { // until it knows the rules, each request that it is asked about is in doubt
		return s.cfg.Admit.Ready()
	}
	return nil
}

// extAuthz is the path for Envoy's HTTP ext_authz, followed by the original path.
const extAuthz = "/v1/ext-authz"

// Handler adds the public API to mux. It returns the handler to serve: mux, preceded by ext_authz,
// which needs unchanged paths.
func (s *Server) Handler(mux *http.ServeMux) http.Handler {
	mux.HandleFunc("POST /v1/check", s.check)
	mux.HandleFunc("POST /v1/check/batch", s.batch)
	mux.HandleFunc("GET /v1/quota", s.quotas)
	s.admitting(mux)
	mux.Handle("/v1/forward-auth", s.proxy)
	if !s.cfg.NoList {
		mux.Handle("GET /v1/blocklist", s.lister())
	}
	httpjson.Fallback(mux)
	envoy := s.proxy.ExtAuthz(extAuthz)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.EscapedPath(), extAuthz) { // behind it is the original target, which may be *
			envoy.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
