package owner

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Registry makes metrics and registers them, under names that begin with tallygate_. The zero value
// registers none.
type Registry struct{ prometheus.Registerer }

// Counter makes a counter without labels.
func (r Registry) Counter(name, help string) prometheus.Counter {
	return register(r, prometheus.NewCounter(prometheus.CounterOpts{Name: "tallygate_" + name, Help: help}))
}

// Counters makes a counter with labels.
func (r Registry) Counters(name, help string, labels ...string) *prometheus.CounterVec {
	return register(r, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tallygate_" + name, Help: help}, labels))
}

// Gauge makes a gauge without labels.
func (r Registry) Gauge(name, help string) prometheus.Gauge {
	return register(r, prometheus.NewGauge(prometheus.GaugeOpts{Name: "tallygate_" + name, Help: help}))
}

// Gauges makes a gauge with labels.
func (r Registry) Gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tallygate_" + name, Help: help}, labels))
}

// Histogram makes a histogram without labels.
func (r Registry) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return register(r, prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tallygate_" + name, Help: help, Buckets: buckets}))
}

// register returns the collector registered under c's name. That is c, unless an earlier Aggregator
// of the same process has registered its own.
func register[C prometheus.Collector](r Registry, c C) C {
	if r.Registerer == nil {
		return c
	}
	err := r.Register(c)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if old, ok := already.ExistingCollector.(C); ok {
			return old
		}
	}
	return c
}
