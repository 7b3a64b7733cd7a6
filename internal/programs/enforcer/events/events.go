// Package events is the enforcer's part with a client of Kafka: it emits the events of requests.
package events

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/internal/base/logonce"
	"github.com/tallygate/tallygate/internal/programs/enforcer"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/kafkaconn/options"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// Command is cmd/enforcer-kafka: it returns the exit status.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	return enforcer.Kafka(connect).Command(ctx, args, stdout, stderr, getenv)
}

func connect(o *options.Options) (enforcer.Events, error) {
	k, err := (&kafkaconn.Options{Options: o}).Build()
	if err != nil {
		return nil, err
	}
	return func(e *enforcer.Program) (admit.Emitter, func(), error) { return open(k, e) }, nil
}

func open(k *kafkaconn.Kafka, e *enforcer.Program) (admit.Emitter, func(), error) {
	// As they are: what a report says was used may be 0.
	emitter, err := k.Emitter(emit.Config{Prefix: e.Prefix, ClientID: "tallygate-enforcer", AsIs: true, OnDrop: dropped(e.Log), Logger: e.Log})
	if err != nil {
		return nil, nil, err
	}
	if err := register(e.Registry, emitter); err != nil {
		closeEmitter(e.Log, emitter)
		return nil, nil, err
	}
	return emitter, func() { closeEmitter(e.Log, emitter) }, nil
}

// dropped logs events that will not be sent, at most once a minute.
func dropped(log *slog.Logger) func(emit.Drop) {
	var line logonce.Line
	return func(d emit.Drop) {
		if left, due := line.Due(); due {
			log.Error("an event is lost; if it was of an admitted request, its permit is counted as a lost one",
				"reason", d.Reason, "error", d.Err, "left_out", left)
		}
	}
}

// closeWithin bounds the wait for Kafka when the program stops.
const closeWithin = 10 * time.Second

func closeEmitter(log *slog.Logger, emitter *emit.Emitter) {
	ctx, stop := context.WithTimeout(context.Background(), closeWithin)
	defer stop()
	if err := emitter.Close(ctx); err != nil {
		log.Error("events are lost; permits of admitted requests are counted as lost ones", "error", err)
	}
}

// register adds the counters of events.
func register(reg prometheus.Registerer, emitter *emit.Emitter) error {
	var errs []error
	for result, count := range map[string]func(emit.Stats) uint64{
		"sent":    func(s emit.Stats) uint64 { return s.Emitted },
		"dropped": func(s emit.Stats) uint64 { return s.Dropped.Total() },
	} {
		errs = append(errs, reg.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "tallygate_admit_events_total", Help: "Events of requests and of reports: sent to Kafka, or dropped.",
			ConstLabels: prometheus.Labels{"result": result},
		}, func() float64 { return float64(count(emitter.Stats())) })))
	}
	return errors.Join(errs...)
}
