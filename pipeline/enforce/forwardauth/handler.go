package forwardauth

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/event"
)

// Decider answers a check. *enforce.Table is one.
type Decider interface {
	CheckDims(api string, dims []event.Dim) enforce.Decision
}

// Config says what a Handler answers from.
type Config struct {
	Decider Decider // required
	Headers Headers // where the proxy says who asks; the zero value has the usual names

	// AllowStatus lets a request through: 204 (also 0) or 200, for proxies that want exactly that.
	AllowStatus int

	// RequireDimensions refuses questions that say nothing of who asks: no verdict could deny them.
	RequireDimensions bool
	// Answers says how those who are denied are answered. A question with denied=403 gets that status whatever Answers.Status is.
	Answers enforce.Answers
	// Refused is told of each question that is refused; nil is nobody.
	Refused func(*Refusal)
}

// Handler answers a proxy's questions: with AllowStatus, or as Config.Answers says. A question whose query has
// denied=403 (or 401) gets that status instead, with the same headers and body: nginx's auth_request
// takes no other. A question that is refused gets 400: see Refusal. 503, which is when nobody knows, stays what it is: nginx denies by 500 then, and not as if the caller were over a limit.
type Handler struct {
	cfg Config
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
	return &Handler{cfg}, nil
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	api, dims, err := h.cfg.Headers.Read(r.Header)
	if h.refused(w, r, dims, err) {
		return
	}
	d := h.cfg.Decider.CheckDims(api, dims)
	if d.Allowed {
		w.WriteHeader(h.cfg.AllowStatus)
		return
	}
	switch {
	case d.Unavailable():
	case r.URL.RawQuery == "denied=401":
		w = &restated{w, http.StatusUnauthorized}
	case r.URL.RawQuery == "denied=403":
		w = &restated{w, http.StatusForbidden}
	}
	h.cfg.Answers.Write(w, r, d, "")
}

// ExtAuthz answers Envoy's ext_authz over HTTP, which sends the original request's method and, behind
// prefix, its path, and which lets through by exactly 200. Serve it without a ServeMux in front: that redirects
// paths such as //search, and to Envoy a redirect is a denial. A 5xx is none: failure_mode_allow decides then, as when nobody
// answers. So who is denied in doubt gets 429 here, without Retry-After.
func (h *Handler) ExtAuthz(prefix string) http.Handler {
	prefix = strings.TrimSuffix(prefix, "/")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target := r.URL.EscapedPath()
		if raw, _, fragment := strings.Cut(r.URL.RawPath, "#"); fragment { // EscapedPath would encode it
			target = raw
		}
		api, dims, err := h.cfg.Headers.ReadFor(r.Header, r.Method, strings.TrimPrefix(target, prefix))
		if h.refused(w, r, dims, err) {
			return
		}
		if d := h.cfg.Decider.CheckDims(api, dims); !d.Allowed {
			answers := h.cfg.Answers
			if answers.UnavailableStatus == 0 || answers.UnavailableStatus >= 500 {
				answers.UnavailableStatus = http.StatusTooManyRequests
			}
			answers.Write(w, r, d, "")
			return
		}
		w.WriteHeader(http.StatusOK)
	})
}

// refused answers a question that has no answer.
func (h *Handler) refused(w http.ResponseWriter, r *http.Request, dims []event.Dim, err error) bool {
	if err == nil && h.cfg.RequireDimensions && len(dims) == 0 {
		err = RequireDimensions()
	}
	refusal, ok := errors.AsType[*Refusal](err)
	if !ok {
		return false
	}
	if h.cfg.Refused != nil {
		h.cfg.Refused(refusal)
	}
	enforce.RefusedBecause(w, r, refusal.Detail)
	return true
}

// restated answers with another status.
type restated struct {
	http.ResponseWriter
	status int
}

func (r *restated) WriteHeader(int) { r.ResponseWriter.WriteHeader(r.status) }
