package forwardauth

import (
	"net/http"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/event"
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

// Left is what is left for a request that a Decider allows. A Decider that knows it has the method
// Left, as *enforce.Table has.
func Left(decider Decider, api string, dims []event.Dim) []enforce.Left {
	if knows, ok := decider.(interface {
		Left(api string, dims []event.Dim) []enforce.Left
	}); ok {
		return knows.Left(api, dims)
	}
	return nil
}

// decide checks a request, and asks for a permit unless a verdict denies it.
func (h *Handler) decide(w http.ResponseWriter, r *http.Request, api string, dims []event.Dim) (d enforce.Decision, permit string) {
	d = h.cfg.Decider.CheckDims(api, dims)
	if !d.Allowed || !Asks(h.cfg.Decider, h.cfg.Admit) {
		return d, ""
	}
	a := enforce.AdmitProxied(r.Context(), h.cfg.Admit, enforce.Request{API: api, Dims: dims})
	if !a.Decision.Allowed {
		if a.Decision.Unavailable() {
			w.Header().Set("Retry-After", "1")
		}
		return a.Decision, ""
	}
	a.PassOn(h.cfg.EmitAdmitted)
	w.Header().Set("Cache-Control", "no-store") // a permit is for one request
	h.cfg.Answers.Admitted(w.Header(), a.Standing)
	return d, a.Permit.Header()
}

// noPermit is a header that is there, and empty.
var noPermit = []string{""}

// permitted tells a proxy the permit. An empty header is told too: proxies that pass on only headers
// that are there would otherwise pass on the client's.
func (h *Handler) permitted(w http.ResponseWriter, permit string) {
	switch {
	case h.cfg.Admit == nil:
	case permit == "":
		w.Header()[event.PermitHeader] = noPermit
	default:
		w.Header().Set(event.PermitHeader, permit)
	}
}

// permittedByEnvoy is permitted for Envoy, which can also be told to remove a header.
func (h *Handler) permittedByEnvoy(w http.ResponseWriter, permit string) {
	switch {
	case h.cfg.Admit == nil:
	case permit == "":
		w.Header().Set("X-Envoy-Auth-Headers-To-Remove", event.PermitHeader)
	default:
		w.Header().Set(event.PermitHeader, permit)
	}
}
