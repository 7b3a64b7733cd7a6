package ops

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/internal/httpjson"
	"github.com/tallygate/tallygate/internal/status"
)

// Reporter answers GET /v1/status: what a program says about itself. Make it with NewReporter, once, when the
// program starts; the zero value of each field but Component leaves that part out.
type Reporter struct {
	Component string // aggregator, enforcer, console, notify
	Instance  string // its --instance-id; "" is Address
	Address   string // where it is reached

	Ready func() error // why it is not ready; nil if it is
	But   func() error // what is wrong with a ready program

	Settings func() []status.Setting // those of its Options
	Registry prometheus.Gatherer
	Log      *slog.Logger

	// Fill adds what only this program has. It must not wait for other programs.
	Fill func(*status.Status)

	began time.Time
}

// NewReporter returns a Reporter for a program that starts now.
func NewReporter(component string) *Reporter {
	return &Reporter{Component: component, began: time.Now()}
}

// ServeHTTP answers GET /v1/status[?metrics=PREFIX,…]. Whoever serves it checks that the caller is a viewer.
func (p *Reporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	prefixes, err := MetricPrefixes(r.URL.Query())
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	httpjson.Reply(w, p.Status(r.Context(), prefixes))
}

// maxMetricPrefixes bounds what a request may ask for.
const maxMetricPrefixes = 50

var metricPrefix = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]{0,127}$`)

// MetricPrefixes reads the parameters of a request for a status: metrics, which names begin with one of its
// prefixes, and no other.
func MetricPrefixes(q url.Values) (prefixes []string, err error) {
	for name, values := range q {
		if name != "metrics" || len(values) != 1 {
			return nil, fmt.Errorf("unknown parameter %.50q, or given twice: there is metrics=PREFIX,…", name)
		}
		prefixes = strings.Split(values[0], ",")
		if len(prefixes) > maxMetricPrefixes {
			return nil, fmt.Errorf("metrics has %d prefixes, at most %d", len(prefixes), maxMetricPrefixes)
		}
		for _, p := range prefixes {
			if !metricPrefix.MatchString(p) {
				return nil, fmt.Errorf("metrics=%.50q: want beginnings of metrics' names, with commas between them", p)
			}
		}
	}
	return prefixes, nil
}

// Status returns the program's status now, with the metrics whose names begin with one of the prefixes.
func (p *Reporter) Status(_ context.Context, prefixes []string) status.Status {
	now := time.Now()
	s := status.Status{
		Component: p.Component, Instance: p.Instance, Address: p.Address,
		Version: Version(), Commit: Commit(), Go: goVersion(),
		Started: p.began.UTC(), Now: now.UTC(), Uptime: now.Sub(p.began).Seconds(),
		Ready: true, Config: []status.Setting{}, Errors: Remembered(p.Log),
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
		s.Metrics = gather(p.Registry, prefixes)
	}
	if p.Fill != nil {
		p.Fill(&s)
	}
	return s
}

// gather reads the metrics whose names begin with one of the prefixes. What a collector cannot tell now is left
// out, as are numbers that JSON does not have.
func gather(from prometheus.Gatherer, prefixes []string) map[string][]status.Sample {
	all := map[string][]status.Sample{}
	families, _ := from.Gather() // those that could be gathered come beside an error
	for _, f := range families {
		if !hasPrefix(f.GetName(), prefixes) {
			continue
		}
		samples := []status.Sample{}
		for _, m := range f.GetMetric() {
			s := status.Sample{Value: m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()}
			for _, l := range m.GetLabel() {
				if s.Labels == nil {
					s.Labels = map[string]string{}
				}
				s.Labels[l.GetName()] = l.GetValue()
			}
			if h := m.GetHistogram(); h != nil {
				s.Sum, s.Count = h.GetSampleSum(), h.GetSampleCount()
				for _, b := range h.GetBucket() {
					if !math.IsInf(b.GetUpperBound(), 0) {
						s.Buckets = append(s.Buckets, status.Bucket{Le: b.GetUpperBound(), Count: b.GetCumulativeCount()})
					}
				}
			}
			if sum := m.GetSummary(); sum != nil {
				s.Sum, s.Count = sum.GetSampleSum(), sum.GetSampleCount()
			}
			if finite(s.Value) && finite(s.Sum) {
				samples = append(samples, s)
			}
		}
		all[f.GetName()] = samples
	}
	return all
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func hasPrefix(name string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}
