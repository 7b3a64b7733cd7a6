package decision

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
	"github.com/tallygate/tallygate/verdict"
)

// maxChecks is the largest number of checks in a batch.
const maxChecks = 1000

// query is one check: may the caller with these dimensions do this now? Unknown fields are refused:
// a check for "user" would otherwise silently allow every caller.
type query struct {
	UID   uid              `json:"uid"`
	IP    string           `json:"ip"`
	API   string           `json:"api"`
	Attrs map[string]value `json:"attrs"`
	Wait  span             `json:"wait"` // how long it may wait for its turn, if it is throttled
}

func (s *Server) answer(ctx context.Context, c *query) (a api.Decision, err error) {
	dims, err := c.dims()
	if err != nil {
		return a, err
	}
	if s.cfg.RequireDimensions && len(dims) == 0 {
		return a, s.withoutDimensions()
	}
	d, waited := s.checkAndWait(ctx, c, dims)
	a = api.Decision{Allowed: d.Allowed, Waited: waited.Milliseconds(), Rule: d.Rule(), Public: s.cfg.Answers.PublicName(d), RetryAfter: int64(d.RetryAfter() / time.Second), InDoubt: d.Unavailable(),
		Verdicts: s.cfg.Table.VerdictsAt(event.FromTime(d.At()), c.API, dims), Staleness: s.cfg.Table.Staleness().Round(time.Millisecond).String()}
	if a.Verdicts == nil {
		a.Verdicts = []*verdict.Verdict{}
	}
	if d.Rule() != "" {
		a.Action, a.Until = d.Action().String(), event.FromTime(d.Until()).String()
	}
	return a, nil
}

// withoutDimensions counts a check that is refused since it has none, and says so.
func (s *Server) withoutDimensions() error {
	refusal := forwardauth.RequireDimensions()
	s.countRefused(refusal)
	return refusal
}

// checkAndWait is CheckDims for a check that may wait for its turn. It is counted once, by its end.
func (s *Server) checkAndWait(ctx context.Context, c *query, dims []event.Dim) (d enforce.Decision, waited time.Duration) {
	d = s.cfg.Table.CheckDims(c.API, dims)
	if c.Wait > 0 && s.throttle.Concerns(d) {
		began := time.Now()
		d = s.throttle.AwaitWithin(ctx, time.Duration(c.Wait), d, c.API, dims)
		waited = time.Since(began)
	}
	s.count(d, dims)
	return d, waited
}

func (s *Server) check(w http.ResponseWriter, r *http.Request) {
	var c query
	if !read(w, r, &c) {
		return
	}
	a, err := s.answer(r.Context(), &c)
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	httpjson.Reply(w, a)
}

func (s *Server) batch(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Checks []query `json:"checks"`
	}
	if !read(w, r, &in) {
		return
	}
	if len(in.Checks) > maxChecks {
		httpjson.Problem(w, http.StatusBadRequest, fmt.Sprintf("%d checks, at most %d in one request", len(in.Checks), maxChecks))
		return
	}
	out := api.Decisions{Results: make([]api.Decision, len(in.Checks))}
	for i := range in.Checks {
		if in.Checks[i].Wait > 0 {
			httpjson.Problem(w, http.StatusBadRequest, fmt.Sprintf("checks[%d]: wait: the checks of a batch don't wait; use /v1/check", i))
			return
		}
		a, err := s.answer(r.Context(), &in.Checks[i])
		if err != nil {
			httpjson.Problem(w, http.StatusBadRequest, fmt.Sprintf("checks[%d]: %v", i, err))
			return
		}
		out.Results[i] = a
	}
	httpjson.Reply(w, out)
}
