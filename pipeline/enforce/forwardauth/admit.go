package forwardauth

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/gate"
	"github.com/tallygate/tallygate/verdict"
)

// Asks reports whether requests are to be asked for: there is an Admitter, it is not idle, and no kill
// switch is on. A Decider that has a switch has the method Enabled() bool, as *enforce.Table has.
func Asks(decider Decider, admit enforce.Admitter) bool {
	if admit == nil || admit.Idle() {
		return false
	}
	switched, ok := decider.(interface{ Enabled() bool })
	return !ok || switched.Enabled()
}

// Left returns the remainders for a request that a Decider allows. A Decider that knows it has the method Left, as
// *enforce.Table has.
func Left(decider Decider, api string, dims []event.Dim) []enforce.Left {
	if knows, ok := decider.(interface {
		Left(api string, dims []event.Dim) []enforce.Left
	}); ok {
		return knows.Left(api, dims)
	}
	return nil
}

// Door carries out what package gate decides, for protocols of proxies. Their requests don't wait.
type Door struct {
	Decider           Decider
	RequireDimensions bool
	Refused           func(*Refusal) // nil is no call
	Admit             enforce.Admitter
	EmitAdmitted      bool
}

// Enter decides on a request that was read with an error, which is nil or a *Refusal.
func (d *Door) Enter(ctx context.Context, answers *enforce.Answers, r *gate.Request, err error) gate.Outcome {
	if err == nil {
		err = d.Required(r.Dims)
	}
	if err != nil {
		d.Refuse(r, err)
	} else {
		d.Check(answers, r)
	}
	return d.Pass(ctx, answers, r)
}

// Pass is Enter for a request that is checked, or refused.
func (d *Door) Pass(ctx context.Context, answers *enforce.Answers, r *gate.Request) gate.Outcome {
	r.Asks = r.Unclear == "" && r.Decision.Allowed && Asks(d.Decider, d.Admit)
	out := gate.Decide(answers, r)
	if out.Do == gate.Ask {
		a := enforce.AdmitProxied(ctx, d.Admit, enforce.Request{API: r.API, Dims: r.Dims})
		r.Answered(a, nil, event.FromTime(time.Now()))
		if out = gate.Decide(answers, r); out.Do == gate.Allow {
			a.PassOn(d.EmitAdmitted)
		}
	}
	if out.Do == gate.Allow {
		out.Left(answers, Left(d.Decider, r.API, r.Dims))
	}
	return out
}

// Required returns the Refusal of a request without dimensions, where they are required; else nil.
func (d *Door) Required(dims []event.Dim) error {
	if d.RequireDimensions && len(dims) == 0 {
		return RequireDimensions()
	}
	return nil
}

// Refuse refuses a request for a *Refusal.
func (d *Door) Refuse(r *gate.Request, err error) {
	r.Unclear = err.Error()
	if why, ok := errors.AsType[*Refusal](err); ok && d.Refused != nil {
		d.Refused(why)
	}
}

// Check checks a request.
func (d *Door) Check(answers *enforce.Answers, r *gate.Request) {
	r.Decision = d.Decider.CheckDims(r.API, r.Dims)
	d.Checked(answers, r)
}

// Checked adds the key over the limit to a request that is checked. A Decider that knows it has the method
// VerdictsAt, as *enforce.Table has.
func (d *Door) Checked(answers *enforce.Answers, r *gate.Request) {
	if r.Decision.Allowed || len(answers.PartitionKey) == 0 {
		return
	}
	if knows, ok := d.Decider.(interface {
		VerdictsAt(at event.Micros, api string, dims []event.Dim) []*verdict.Verdict
	}); ok {
		r.Key = gate.KeyOf(r.Decision, knows.VerdictsAt(event.FromTime(r.Decision.At()), r.API, r.Dims))
	}
}

// noPermit is a header that is there, and empty.
var noPermit = []string{""}

// permitted reports whether a request is let in, and tells the proxy its permit. An empty header is told too:
// proxies that pass on only headers that are there would otherwise pass on the client's. Envoy can also be told to
// remove a header.
func (h *Handler) permitted(header http.Header, out *gate.Outcome, envoy bool) bool {
	switch {
	case out != nil && out.Do != gate.Allow:
		return false
	case h.door.Admit == nil:
	case out != nil && out.Permit.ID != "":
		header[event.PermitHeader] = []string{out.Permit.Header()}
	case envoy:
		header.Set("X-Envoy-Auth-Headers-To-Remove", event.PermitHeader)
	default:
		header[event.PermitHeader] = noPermit
	}
	return true
}
