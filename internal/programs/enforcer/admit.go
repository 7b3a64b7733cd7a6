package enforcer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tallygate/tallygate/internal/run/kafkaconn/options"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/pipeline/admit"
)

// admitOptions are the options about permits.
type admitOptions struct {
	into  *Program
	rules ops.Table
	kafka *options.Options
	usage *usageOptions
}

func addAdmit(o *ops.Options, into *Program) *admitOptions {
	a := &admitOptions{into: into, kafka: options.New(o)}
	o.TextVar(&into.Admit.OnDoubt, "on-doubt", admit.Closed, "`answer` while nobody knows whether a strict limit is reached: closed, open or local")
	a.rules = o.Table("on-doubt-of", "`RULE=ANSWER,…`: the same for single rules: closed, open or local")
	o.IntVar(&into.Admit.Enforcers, "enforcers", 1, "`number` of decision servers that share a strict limit while it is in doubt, with the answer local")
	o.BoolVar(&into.Config.AdmitProxies, "admit-proxies", false, "ask for permits for proxies' requests, too; needs services that put the fields of X-Tallygate-Permit into their events, or --emit-admitted")
	o.BoolVar(&into.Config.EmitAdmitted, "emit-admitted", false, "emit the events of admitted requests to --kafka, for services that emit none: of proxies' requests at once, of others by /v1/done")
	o.BoolVar(&into.EmitDenied, "emit-denied", false, "emit some of the requests that proxies are told to deny to --kafka, with the outcome limited: such an event tells a larger plan, and counts only where a rule names that outcome")
	a.usage = addUsage(o, &into.Config.Usage)
	return a
}

func (o *admitOptions) build(k Kafka) error {
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
	if err := o.usage.build(); err != nil {
		errs = append(errs, err)
	}
	if o.into.Config.EmitAdmitted || o.into.EmitDenied || o.into.Config.Usage.On() {
		if k == nil {
			return errNoKafka
		}
		var err error
		if o.into.Events, err = k(o.kafka); err != nil {
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
	if e.Events != nil {
		events, end, err := e.Events(e)
		if err != nil {
			return nil, closeEvents, err
		}
		closeEvents = end
		if e.Config.EmitAdmitted {
			cfg.Events = events
		}
		if e.EmitDenied {
			e.Config.Denied = events
		}
		if e.Config.Usage.On() {
			e.Config.Usage.Events = events
		}
	}
	a, err = admit.New(cfg)
	if err != nil {
		closeEvents()
	}
	return a, closeEvents, err
}
