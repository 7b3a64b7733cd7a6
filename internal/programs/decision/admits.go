package decision

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

// proxied asks for the permits of requests that proxies ask about.
type proxied struct{ s *Server }

// Idle implements enforce.Admitter.
func (p proxied) Idle() bool { return p.s.cfg.Admit.Idle() }

// AdmitRequest implements enforce.Admitter.
func (p proxied) AdmitRequest(ctx context.Context, r enforce.Request) (enforce.Admission, error) {
	permit, err := p.s.ask(ctx, admit.Request{API: r.API, Dims: r.Dims, Cost: r.Cost})
	if err != nil {
		return enforce.Admission{}, err
	}
	if !permit.Admitted {
		p.s.tells(r.API, r.Dims)
	}
	return permit.Admission(), nil
}

// forProxies returns the admitter of proxies' requests; nil: none.
func (s *Server) forProxies() enforce.Admitter {
	if s.cfg.Admit == nil || !s.cfg.AdmitProxies {
		return nil
	}
	return proxied{s}
}

// newTook makes a histogram of the durations of requests for permits.
func newTook() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "tallygate_admit_seconds", Help: "Seconds that a request for a permit took, with its wait in line.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	})
}

// registerAdmits registers what becomes of requests for permits.
func (s *Server) registerAdmits(reg prometheus.Registerer) error {
	if s.cfg.Admit == nil {
		return nil
	}
	var errs []error
	counter := func(name, help, label, value string, count func(admit.Stats) uint64) {
		opts := prometheus.CounterOpts{Name: name, Help: help}
		if label != "" {
			opts.ConstLabels = prometheus.Labels{label: value}
		}
		errs = append(errs, reg.Register(prometheus.NewCounterFunc(opts, func() float64 { return float64(count(s.cfg.Admit.Stats())) })))
	}
	gauge := func(name, help string, value func(admit.Stats) float64) {
		errs = append(errs, reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return value(s.cfg.Admit.Stats()) })))
	}
	const results = "Requests that strict limits concern, by result: admitted, denied or in_doubt."
	counter("tallygate_admits_total", results, "result", "admitted", func(a admit.Stats) uint64 { return a.Admitted })
	counter("tallygate_admits_total", results, "result", "denied", func(a admit.Stats) uint64 { return a.Denied })
	counter("tallygate_admits_total", results, "result", "in_doubt", func(a admit.Stats) uint64 { return a.InDoubt })
	const refused = "Denied of these for what they ask, by reason: ended (the id is of a permit that has ended), taken (it is another action's) or uncountable."
	counter("tallygate_admits_refused_total", refused, "reason", "ended", func(a admit.Stats) uint64 { return a.Refused.Ended })
	counter("tallygate_admits_refused_total", refused, "reason", "taken", func(a admit.Stats) uint64 { return a.Refused.Taken })
	counter("tallygate_admits_refused_total", refused, "reason", "uncountable", func(a admit.Stats) uint64 { return a.Refused.Uncountable })
	counter("tallygate_admits_ahead_total", "Permits that were granted ahead, and handed out without a question.", "", "", func(a admit.Stats) uint64 { return a.Ahead })
	counter("tallygate_admit_questions_total", "Questions to Redis for permits.", "", "", func(a admit.Stats) uint64 { return a.Questions })
	counter("tallygate_admit_unanswered_total", "Questions to Redis for permits that failed, or had no answer within a second.", "", "", func(a admit.Stats) uint64 { return a.Unanswered })
	const cancels = "Permits to be given back, by what became of that: done, or lost, as too many waited."
	counter("tallygate_admit_cancels_total", cancels, "result", "done", func(a admit.Stats) uint64 { return a.Cancelled })
	counter("tallygate_admit_cancels_total", cancels, "result", "lost", func(a admit.Stats) uint64 { return a.CancelsLost })
	gauge("tallygate_admit_cancels_waiting", "Permits that wait to be given back: Redis has not answered yet.", func(a admit.Stats) float64 { return float64(a.CancelsWaiting) })
	gauge("tallygate_admit_rules_version", "The newest version of the strict rules that is known here; 0: none.", func(a admit.Stats) float64 { return float64(a.Version) })
	return errors.Join(append(errs, reg.Register(s.took))...)
}
