package enforcer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/internal/kafkaconn"
	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/internal/seldom"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// admitOptions are the options about permits.
type admitOptions struct {
	into  *Program
	rules ops.Table
	kafka *kafkaconn.Options
}

func addAdmit(o *ops.Options, into *Program) *admitOptions {
	a := &admitOptions{into: into, kafka: kafkaconn.NewOptions(o)}
	o.TextVar(&into.Admit.OnDoubt, "on-doubt", admit.Closed, "`answer` while nobody knows whether a strict limit is reached: closed, open or local")
	a.rules = o.Table("on-doubt-of", "`RULE=ANSWER,…`: the same for single rules: closed, open or local")
	o.IntVar(&into.Admit.Enforcers, "enforcers", 1, "`number` of decision servers that share a strict limit while it is in doubt, with the answer local")
	o.BoolVar(&into.Config.AdmitProxies, "admit-proxies", false, "ask for permits for proxies' requests, too; needs services that put the fields of X-Tallygate-Permit into their events, or --emit-admitted")
	o.BoolVar(&into.Config.EmitAdmitted, "emit-admitted", false, "emit the events of admitted requests to --kafka, for services that emit none: of proxies' requests at once, of others by /v1/done")
	o.BoolVar(&into.EmitDenied, "emit-denied", false, "emit some of the requests that proxies are told to deny to --kafka, with the outcome limited: such an event tells a larger plan, and counts only where a rule names that outcome")
	return a
}

func (o *admitOptions) build() error {
	var errs []error
	if o.into.Admit.Enforcers < 1 {
		errs = append(errs, fmt.Errorf("--enforcers %d: want at least 1", o.into.Admit.Enforcers))
	}
	o.into.Admit.OnDoubtOf = map[string]admit.OnDoubt{}
	for _, name := range slices.Sorted(maps.Keys(o.rules)) {
		var on admit.OnDoubt
		if err := on.UnmarshalText([]byte(o.rules[name])); err != nil {
			errs = append(errs, fmt.Errorf("--on-doubt-of: %s=%w", name, err))
		}
		o.into.Admit.OnDoubtOf[name] = on
	}
	if o.into.Config.EmitAdmitted || o.into.EmitDenied {
		var err error
		if o.into.Kafka, err = o.kafka.Build(); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &ops.UsageError{Err: err}
	}
	return nil
}

// admitter asks for permits by the options. It emits events when there is a Kafka for them; close sends
// what is left of these.
func (e *Program) admitter() (a *admit.Admitter, closeEvents func(), err error) {
	cfg := e.Admit
	cfg.Redis, cfg.Prefix, cfg.Logger = e.Redis, e.Prefix, e.Log
	cfg.MaxDelay, cfg.MaxDelayedPerKey = -time.Second, e.Config.MaxWaitingPerKey // proxies' requests don't wait
	closeEvents = func() {}
	if e.Kafka != nil {
		emitter, err := e.Kafka.Emitter(emit.Config{Prefix: e.Prefix, ClientID: "tallygate-enforcer", OnDrop: e.dropped(), Logger: e.Log})
		if err != nil {
			return nil, closeEvents, err
		}
		if e.Config.EmitAdmitted {
			cfg.Events = emitter
		}
		if e.EmitDenied {
			e.Config.Denied = emitter
		}
		closeEvents = func() { e.closeEvents(emitter) }
		if err := registerEvents(e.Registry, emitter); err != nil {
			closeEvents()
			return nil, closeEvents, err
		}
	}
	a, err = admit.New(cfg)
	if err != nil {
		closeEvents()
	}
	return a, closeEvents, err
}

// dropped logs events that will not be sent, at most once a minute.
func (e *Program) dropped() func(emit.Drop) {
	var line seldom.Line
	return func(d emit.Drop) {
		if left, due := line.Due(); due {
			e.Log.Error("an event is lost; if it was of an admitted request, its permit is counted as a lost one", "reason", d.Reason, "error", d.Err, "left_out", left)
		}
	}
}

// closeWithin is how long events may take to Kafka when the program stops.
const closeWithin = 10 * time.Second

func (e *Program) closeEvents(emitter *emit.Emitter) {
	ctx, stop := context.WithTimeout(context.Background(), closeWithin)
	defer stop()
	if err := emitter.Close(ctx); err != nil {
		e.Log.Error("events are lost; permits of admitted requests are counted as lost ones", "error", err)
	}
}

// registerEvents registers what becomes of events.
func registerEvents(reg prometheus.Registerer, emitter *emit.Emitter) error {
	var errs []error
	for result, count := range map[string]func(emit.Stats) uint64{
		"sent":    func(s emit.Stats) uint64 { return s.Emitted },
		"dropped": func(s emit.Stats) uint64 { return s.Dropped.Total() },
	} {
		errs = append(errs, reg.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "tallygate_admit_events_total", Help: "Events of admitted and denied requests: sent to Kafka, or dropped.",
			ConstLabels: prometheus.Labels{"result": result},
		}, func() float64 { return float64(count(emitter.Stats())) })))
	}
	return errors.Join(errs...)
}
