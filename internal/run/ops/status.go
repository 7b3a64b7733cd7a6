package ops

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/run/samples"
)

// Reporter answers GET /v1/status: what a program says about itself. Make it with NewReporter, once, when the
// program starts; the zero value of each field but Component leaves that part out.
type Reporter struct {
	Component string // aggregator, enforcer, console, notify
	Instance  string // its --instance-id; "" is Address
	Address   string // where it is reached

	Ready func() error // why it is not ready; nil if it is
	But   func() error // what is wrong with a ready program

	Settings func() []api.Setting // those of its Options
	Registry prometheus.Gatherer
	Log      *slog.Logger

	// Fill adds what only this program has. It must not wait for other programs.
	Fill func(*api.Status)

	began time.Time
}

// NewReporter returns a Reporter for a program that starts now.
func NewReporter(component string) *Reporter {
	return &Reporter{Component: component, began: time.Now()}
}

// ServeHTTP answers GET /v1/status[?metrics=PREFIX,…]. Whoever serves it checks that the caller is a viewer.
func (p *Reporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	prefixes, err := samples.Prefixes(r.URL.Query())
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	httpjson.Reply(w, p.Status(r.Context(), prefixes))
}

// Status returns the program's status now, with the metrics whose names begin with one of the prefixes.
func (p *Reporter) Status(_ context.Context, prefixes []string) api.Status {
	now := time.Now()
	s := api.Status{
		Component: p.Component, Instance: p.Instance, Address: p.Address,
		Version: Version(), Commit: Commit(), Go: goVersion(),
		Started: p.began.UTC(), Now: now.UTC(), Uptime: now.Sub(p.began).Seconds(),
		Ready: true, Config: []api.Setting{}, Errors: Remembered(p.Log),
	}
	if s.Instance == "" {
		s.Instance = p.Address
	}
	if p.Ready != nil {
		if err := p.Ready(); err != nil {
			s.Ready, s.Why = false, oneLine(err.Error())
		}
	}
	if p.But != nil && s.Ready {
		if err := p.But(); err != nil {
			s.Why = oneLine(err.Error())
		}
	}
	if p.Settings != nil {
		s.Config = p.Settings()
	}
	if p.Registry != nil && len(prefixes) > 0 {
		s.Metrics = samples.Gather(p.Registry, prefixes)
	}
	if p.Fill != nil {
		p.Fill(&s)
	}
	return s
}
