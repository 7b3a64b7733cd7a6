package forwardauth

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/gate"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// Decider answers a check. *enforce.Table is one.
type Decider interface {
	CheckDims(api string, dims []event.Dim) enforce.Decision
}

// Config configures a Handler.
type Config struct {
	Decider Decider // required
	Headers Headers // where the proxy says who asks; the zero value has the usual names

	// AllowStatus allows a request: 204 (also 0), or 200 for proxies that require it.
	AllowStatus int

	// RequireDimensions refuses requests that don't identify anyone: only verdicts on an API or on all could deny them.
	RequireDimensions bool
	// Answers configures responses to denied requests. The query denied=403 overrides
	// Answers.Status.
	Answers enforce.Answers
	// Refused is called for each refused request; nil is no call.
	Refused func(*Refusal)

	// Admit, if set, is asked for a permit for each request that no verdict denies: an admit.Admitter.
	// The permit goes to the proxy in the header event.PermitHeader, which the proxy has to pass on in
	// place of the client's. The service puts it into its event. What is under way in Redis ends after
	// its hold, as nobody tells when the request ends.
	Admit enforce.Admitter
	// EmitAdmitted ends each admitted request at once, with the outcome success: Admit then has to emit
	// its event. It is for services that emit none.
	EmitAdmitted bool
}

// Handler answers a proxy's requests: with AllowStatus, or as Config.Answers says. With the query
// denied=403 (or 401) a denial has that status, and the same headers and body: nginx's auth_request
// accepts no other. Refused requests get 400: see Refusal. A stale table that fails closed still
// answers 503: nginx then denies with 500, not as if the client were over a limit. So does a strict
// limit in doubt, with Retry-After: 1.
type Handler struct {
	cfg  Config
	door Door
}

// New checks cfg.
func New(cfg Config) (*Handler, error) {
	cfg.Headers = cfg.Headers.WithDefaults()
	if err := errors.Join(cfg.Headers.Validate(), cfg.Answers.Validate()); err != nil {
		return nil, err
	}
	cfg.AllowStatus = cmp.Or(cfg.AllowStatus, http.StatusNoContent)
	if t, ok := cfg.Decider.(*enforce.Table); cfg.Decider == nil || ok && t == nil {
		return nil, errors.New("forwardauth: Decider is required")
	}
	if cfg.AllowStatus != http.StatusNoContent && cfg.AllowStatus != http.StatusOK {
		return nil, fmt.Errorf("forwardauth: it lets through with 200 or 204, not %d", cfg.AllowStatus)
	}
	return &Handler{cfg, Door{cfg.Decider, cfg.RequireDimensions, cfg.Refused, cfg.Admit, cfg.EmitAdmitted}}, nil
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	api, dims, err := h.cfg.Headers.Read(r.Header)
	out := h.enter(w, r, &h.cfg.Answers, api, dims, err)
	if h.permitted(w.Header(), out, false) {
		w.WriteHeader(h.cfg.AllowStatus)
		return
	}
	if out.Do == gate.Deny && !out.By.Unavailable() {
		switch r.URL.RawQuery {
		case "denied=401":
			out.Status = http.StatusUnauthorized
		case "denied=403":
			out.Status = http.StatusForbidden
		}
	}
	httplimit.Answer(w, out)
}

// enter decides on a request, and tells an allowed one what is left; nil: it passes as it is. Nearly all do, and
// need neither a gate.Request nor an Outcome.
func (h *Handler) enter(w http.ResponseWriter, r *http.Request, answers *enforce.Answers, api string, dims []event.Dim, err error) *gate.Outcome {
	if err == nil {
		err = h.door.Required(dims)
	}
	var d enforce.Decision
	if err == nil {
		if d = h.door.Decider.CheckDims(api, dims); d.Allowed && !Asks(h.door.Decider, h.door.Admit) {
			answers.Quotas(w.Header(), Left(h.door.Decider, api, dims))
			return nil
		}
	}
	q := gate.Request{
		API: api, Dims: dims, Decision: d, Languages: r.Header.Get("Accept-Language"), Head: r.Method == http.MethodHead,
		Tells: true, Header: w.Header(),
	}
	if err != nil {
		h.door.Refuse(&q, err)
	} else {
		h.door.Checked(answers, &q)
	}
	out := h.door.Pass(r.Context(), answers, &q)
	if q.Asked && out.Do == gate.Allow {
		w.Header().Set("Cache-Control", "no-store") // a permit is for one request
	}
	return &out
}

// ExtAuthz answers Envoy's ext_authz over HTTP. Envoy sends the original request's method and,
// after prefix, its path, and allows only by 200. Don't put a ServeMux in front: it redirects paths
// such as
// //search, and Envoy takes a redirect for a denial. Envoy takes a 5xx for a failure, which
// failure_mode_allow may allow. So a stale table that fails closed answers 429, without
// Retry-After, and a strict limit in doubt 429 with Retry-After: 1.
func (h *Handler) ExtAuthz(prefix string) http.Handler {
	prefix = strings.TrimSuffix(prefix, "/")
	answers := h.cfg.Answers
	if answers.UnavailableStatus == 0 || answers.UnavailableStatus >= 500 {
		answers.UnavailableStatus = http.StatusTooManyRequests
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target := r.URL.EscapedPath()
		if raw, _, fragment := strings.Cut(r.URL.RawPath, "#"); fragment { // EscapedPath would encode it
			target = raw
		}
		api, dims, err := h.cfg.Headers.ReadFor(r.Header, r.Method, strings.TrimPrefix(target, prefix))
		out := h.enter(w, r, &answers, api, dims, err)
		if h.permitted(w.Header(), out, true) {
			w.WriteHeader(http.StatusOK)
			return
		}
		httplimit.Answer(w, out)
	})
}
