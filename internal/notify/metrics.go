package notify

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/internal/notify/note"
	"github.com/tallygate/tallygate/internal/notify/receive"
)

// metrics are the program's. A receiver's name is the operator's, and no label names a key.
type metrics struct {
	sent    *prometheus.CounterVec // receiver, kind
	failed  *prometheus.CounterVec // receiver, reason
	dropped *prometheus.CounterVec // receiver, reason
	backlog *prometheus.GaugeVec   // receiver
	lag     *prometheus.GaugeVec   // receiver
	reloads *prometheus.CounterVec // result
	polls   *prometheus.CounterVec // result
}

// Why notes are dropped.
const (
	dropOld        = "old"        // older than max_age
	dropRefused    = "refused"    // the receiver refuses the message itself
	dropRetention  = "retention"  // the topic has deleted them
	dropUnreadable = "unreadable" // an entry cannot be read
)

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		sent:    counter("tallygate_notify_sent_total", "Messages that a receiver has accepted.", "receiver", "kind"),
		failed:  counter("tallygate_notify_failed_total", "Failed attempts to send a message, by reason.", "receiver", "reason"),
		dropped: counter("tallygate_notify_dropped_total", "Notes and audit entries that a receiver was not told, by reason.", "receiver", "reason"),
		backlog: gauge("tallygate_notify_backlog", "Notes that wait for the receiver.", "receiver"),
		lag:     gauge("tallygate_notify_lag_seconds", "Age of the oldest note that the receiver has not been told.", "receiver"),
		reloads: counter("tallygate_notify_reloads_total", "Times that the file was read again, by result.", "result"),
		polls:   counter("tallygate_notify_polls_total", "Looks at aggregators and enforcers, by result.", "result"),
	}
	for _, result := range []string{"ok", "error"} {
		m.reloads.WithLabelValues(result)
		m.polls.WithLabelValues(result)
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.sent, m.failed, m.dropped, m.backlog, m.lag, m.reloads, m.polls} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

// of makes a receiver's series appear, so that a rate can be had from the beginning.
func (m *metrics) of(receiver string) {
	for _, kind := range note.Kinds() {
		m.sent.WithLabelValues(receiver, string(kind))
	}
	for _, reason := range receive.Reasons() {
		m.failed.WithLabelValues(receiver, reason)
	}
	for _, reason := range []string{dropOld, dropRefused, dropRetention, dropUnreadable} {
		m.dropped.WithLabelValues(receiver, reason)
	}
	m.backlog.WithLabelValues(receiver)
	m.lag.WithLabelValues(receiver)
}

// gone takes away what is about a receiver that is no more: counters stay, until the program ends.
func (m *metrics) gone(receiver string) {
	m.backlog.DeleteLabelValues(receiver)
	m.lag.DeleteLabelValues(receiver)
}
