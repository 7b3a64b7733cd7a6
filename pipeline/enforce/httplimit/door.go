package httplimit

import (
	"context"
	"errors"
	"net/http"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/gate"
)

// Door carries out what package gate decides, for a service's middleware of any protocol: it checks requests,
// has them wait, and asks for their permits. Its methods may be called by many goroutines.
type Door struct {
	table    *enforce.Table
	throttle *enforce.Throttle
	denials  *enforce.Denials
	door     DoorOptions
}

// DoorOptions are those of Options that are about no protocol.
type DoorOptions struct {
	Answers    enforce.Answers
	Throttle   enforce.ThrottleConfig
	Admit      enforce.Admitter
	Events     Emitter
	EmitDenied bool
}

// NewDoor returns a Door, or an error for a nil table and invalid options.
func NewDoor(table *enforce.Table, o DoorOptions) (*Door, error) {
	throttle, err := enforce.NewThrottleWith(table, o.Throttle)
	if err := errors.Join(o.Answers.Validate(), err); err != nil {
		return nil, err
	}
	return &Door{table, throttle, enforce.NewDenials(), o}, nil
}

// Enter decides on a request: whether it is let in, denied, or refused.
func (d *Door) Enter(ctx context.Context, r *gate.Request) gate.Outcome {
	if r.Read(); r.Unclear != "" {
		return gate.Decide(&d.door.Answers, r)
	}
	r.Decision = d.table.CheckDims(r.API, r.Dims)
	return d.Pass(ctx, r)
}

// Pass is Enter for a request that is checked.
func (d *Door) Pass(ctx context.Context, r *gate.Request) gate.Outcome {
	r.Waits, r.Asks = d.throttle.Concerns(r.Decision), d.asks()
	for {
		if !r.Decision.Allowed && len(d.door.Answers.PartitionKey) > 0 {
			r.Key = gate.KeyOf(r.Decision, d.table.VerdictsAt(event.FromTime(r.Decision.At()), r.API, r.Dims))
		}
		switch out := gate.Decide(&d.door.Answers, r); out.Do {
		case gate.Wait:
			r.Waited(d.throttle.Await(ctx, r.Decision, r.API, r.Dims))
		case gate.Ask:
			a, err := d.door.Admit.AdmitRequest(ctx, enforce.Request{API: r.API, Dims: r.Dims, Cost: r.Reserve.Cost, Attrs: r.Reserve.Attrs})
			r.Answered(a, err, d.table.Now())
		case gate.Allow:
			if r.Tells && r.API != "" && d.mayTell(r.Dims) {
				out.Left(&d.door.Answers, d.table.Left(r.API, r.Dims))
			}
			fallthrough
		default:
			d.table.CountDecision(r.Decision)
			return out
		}
	}
}

// mayDeny reports whether a check of these dimensions could deny, or have the request wait.
func (d *Door) mayDeny(dims []event.Dim) bool { return d.table.MayDeny(dims) || d.throttle.Busy() }

// asks reports whether rules ask for permits now.
func (d *Door) asks() bool {
	return d.door.Admit != nil && !d.door.Admit.Idle() && d.table.Enabled()
}

// mayTell reports whether callers may be told what is left for these dimensions.
func (d *Door) mayTell(dims []event.Dim) bool {
	return d.door.Answers.TellQuotas() && d.table.MayTell(dims)
}

// Emits reports whether a request that is denied has an event.
func (d *Door) Emits(r *gate.Request) bool {
	return d.door.Events != nil && (d.door.EmitDenied || d.denials.Emits(r.API, r.Dims))
}

// Answer writes what is answered to a request that is not let in.
func Answer(w http.ResponseWriter, out *gate.Outcome) {
	h := w.Header()
	for name, values := range out.Header {
		h[name] = values
	}
	h.Del("Content-Length") // of the response that the handler began
	w.WriteHeader(out.Status)
	_, _ = w.Write(out.Body()) // fails only when the client has left
}
