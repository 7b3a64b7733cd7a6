package decision

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/gate"
	"github.com/tallygate/tallygate/verdict"
)

// wish is a request for a permit: a query, and what only a permit needs.
type wish struct {
	query
	Cost cost            `json:"cost"`
	ID   string          `json:"id"` // asked again with it, the request gets the same permit
	Hold json.RawMessage `json:"hold"`
}

// cost is the event's at most.
type cost event.Decimal

func (c *cost) UnmarshalJSON(data []byte) error {
	d, err := event.ParseDecimal(string(data))
	if data[0] == 'n' {
		return nil
	}
	if err != nil || d <= 0 {
		return fmt.Errorf("cost: %.40s is not a number above 0, to the millionth", data)
	}
	*c = cost(d)
	return nil
}

const maxRequestID = 120 // bytes

// check returns an error where the wish is for no event that there can be.
func (q *wish) check(attrs []event.Attr) error {
	if len(q.Hold) > 0 && string(q.Hold) != "null" {
		return errors.New("hold: a permit is held for as long as its rule says: set it there, as in strict: {hold: 5m}")
	}
	if len(q.ID) > maxRequestID || strings.ContainsFunc(q.ID, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("id %.40q: at most %d printable characters of ASCII, without spaces", q.ID, maxRequestID)
	}
	e := event.Event{API: q.API, UID: string(q.UID), Cost: event.One, Time: event.NoTime, BrokerTime: event.NoTime, Attrs: attrs}
	e.Canonicalize()
	return e.Validate()
}

// attributes are those of the event.
func (q *wish) attributes() (out []event.Attr) {
	for name, v := range q.Attrs {
		if v.Text != "" {
			out = append(out, event.Attr{Name: name, Value: event.Value(v)})
		}
	}
	slices.SortFunc(out, func(a, b event.Attr) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// deniedBy is the answer to a wish that a check denies.
func (s *Server) deniedBy(d enforce.Decision) api.Admission {
	a := api.Admission{Limited: true, RetryAfter: int64(d.RetryAfter() / time.Second)}
	if d.Unavailable() {
		a.InDoubt, a.RetryAfter, a.Reason = true, seconds(gate.RetryInDoubt), "the blocklist is stale"
		return a
	}
	a.Rule, a.Public, a.Action, a.Until = d.Rule(), s.cfg.Answers.PublicName(d), d.Action().String(), event.FromTime(d.Until()).String()
	if limit := d.Limit(); limit > 0 {
		a.Limit, a.Remaining = &limit, new(event.Decimal)
	}
	return a
}

// told is the answer that a permit is.
func (s *Server) told(p *admit.Permit) (a api.Admission, err error) {
	a = api.Admission{Admitted: p.Admitted, Limited: !p.Admitted, InDoubt: p.InDoubt, Reason: p.Reason}
	if by := p.By; by != nil && (!p.InDoubt || !p.Admitted) {
		d := enforce.Refuse(&verdict.Verdict{Rule: by.Name, Public: by.Rule.Public, Action: by.Rule.Action}, p.Numbers.RetryAfter)
		a.Rule, a.Public = by.Name, s.cfg.Answers.PublicName(d)
		if !p.InDoubt && p.Numbers.Limit > 0 { // a request that is refused for what it asks was compared with none
			a.Limit, a.Remaining, a.Reset = &p.Numbers.Limit, &p.Numbers.Remaining, seconds(p.Numbers.ResetAfter)
		}
		if !p.Admitted {
			a.Action = by.Rule.Action.String()
		}
	}
	switch after := p.Numbers.RetryAfter; {
	case p.Admitted:
		a.ID = p.RequestID()
		if header := p.Event.Header(); header != "" {
			err = json.Unmarshal([]byte(header), &struct {
				Permit   *string          `json:"permit"`
				PermitAt *json.RawMessage `json:"permit_at"`
			}{&a.Permit, &a.PermitAt})
		}
		if err == nil {
			a.Token, err = p.Token()
		}
	case p.InDoubt:
		a.RetryAfter = seconds(gate.RetryInDoubt)
	case after == admit.Never:
		a.Reason = cmp.Or(p.Reason, "its cost is more than the limit: it never fits")
	case after > 0:
		until := cmp.Or(p.Numbers.RetryAt, event.FromTime(time.Now().Add(after)))
		a.RetryAfter, a.Until = seconds(after), until.String()
	}
	return a, err
}

// seconds are whole ones, rounded up.
func seconds(d time.Duration) int64 { return int64(max(d-1, 0)/time.Second) + min(int64(d), 1) }

// serveAdmit answers POST /v1/admit.
func (s *Server) serveAdmit(w http.ResponseWriter, r *http.Request) {
	var q wish
	if !read(w, r, &q) {
		return
	}
	attrs := q.attributes()
	dims, err := q.dims()
	if err == nil {
		err = q.check(attrs)
	}
	if err == nil && s.cfg.RequireDimensions && len(dims) == 0 {
		err = s.withoutDimensions()
	}
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	a, err := s.admitted(r.Context(), &q, dims, attrs)
	switch {
	case r.Context().Err() != nil: // nobody is there to be told
	case errors.Is(err, admit.ErrRequest):
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
	case err != nil:
		w.Header().Set("Retry-After", strconv.FormatInt(seconds(gate.RetryInDoubt), 10))
		httpjson.Problem(w, http.StatusServiceUnavailable, err.Error())
	default:
		httpjson.Reply(w, a)
	}
}

// admitted asks for a permit, unless a verdict denies. A permit that nobody is told of is given back; one
// whose request has an id is there for who asks again.
func (s *Server) admitted(ctx context.Context, q *wish, dims []event.Dim, attrs []event.Attr) (api.Admission, error) {
	d, waited := s.checkAndWait(ctx, &q.query, dims)
	if !d.Allowed {
		a := s.deniedBy(d)
		a.Waited = waited.Milliseconds()
		return a, nil
	}
	asking := ctx
	if q.ID != "" {
		var stop context.CancelFunc
		asking, stop = context.WithTimeout(context.WithoutCancel(ctx), askWithin)
		defer stop()
	}
	began := time.Now()
	most, leave := s.mayWait(time.Duration(q.Wait) - waited)
	defer leave()
	p, err := s.ask(asking, admit.Request{
		API: q.API, Attrs: attrs, Cost: event.Decimal(q.Cost), ID: q.ID, MaxDelay: most,
		Dims: slices.DeleteFunc(dims, func(d event.Dim) bool { return strings.HasPrefix(d.Name, "attrs.") }),
	})
	if err != nil {
		return api.Admission{}, err
	}
	if ctx.Err() != nil && q.ID == "" {
		p.Cancel()
		return api.Admission{}, ctx.Err()
	}
	a, err := s.told(p)
	if err != nil {
		p.Cancel()
		return api.Admission{}, err
	}
	if most > 0 {
		a.Waited = (waited + time.Since(began)).Milliseconds()
	}
	return a, nil
}

// ask asks the admitter, unless enforcement is off.
func (s *Server) ask(ctx context.Context, r admit.Request) (*admit.Permit, error) {
	if !s.cfg.Table.Enabled() {
		return s.cfg.Admit.Unasked(r), nil
	}
	began := time.Now()
	p, err := s.cfg.Admit.Admit(ctx, r)
	if err == nil {
		s.took.Observe(time.Since(began).Seconds())
	}
	return p, err
}

// askWithin bounds asking for a permit whose client has left: current requests may take so long when the
// program is told to stop.
const askWithin = 10 * time.Second

// mayWait returns how long a wish may wait for its turn under a strict limit: below zero, not at all.
func (s *Server) mayWait(wants time.Duration) (most time.Duration, leave func()) {
	if most = min(wants, s.cfg.MaxWait); most <= 0 {
		return -1, func() {}
	}
	select {
	case s.waiting <- struct{}{}:
		return most, func() { <-s.waiting }
	default: // too many wait
		return -1, func() {}
	}
}

// ending is a request to end a permit.
type ending struct {
	Token   string `json:"token"`
	Outcome string `json:"outcome"`
}

// end answers POST /v1/cancel and POST /v1/done.
func (s *Server) end(do func(*admit.Permit, string) (emitted bool), outcome bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var e ending
		if !read(w, r, &e) {
			return
		}
		var err error
		switch {
		case e.Token == "":
			err = errors.New("token is required: give the one of the answer of /v1/admit; without one there is nothing to end")
		case e.Outcome != "" && !outcome:
			err = errors.New("outcome: a permit that is cancelled has none; use /v1/done for actions that happened")
		}
		if err != nil {
			httpjson.Problem(w, http.StatusBadRequest, err.Error())
			return
		}
		p, whole, err := s.cfg.Admit.Resume(e.Token)
		if err != nil {
			httpjson.Problem(w, http.StatusBadRequest, "token: "+err.Error())
			return
		}
		httpjson.Reply(w, api.Ended{Ended: true, Emitted: do(p, e.Outcome), Elsewhere: !whole})
	}
}

func cancelPermit(p *admit.Permit, _ string) bool { p.Cancel(); return false }

func endPermit(p *admit.Permit, outcome string) bool { return p.End(outcome) }

// admitting adds the paths that change something, for those who may.
func (s *Server) admitting(mux *http.ServeMux) {
	if s.cfg.Admit == nil {
		return
	}
	for path, serve := range map[string]http.HandlerFunc{
		"POST /v1/admit": s.serveAdmit, "POST /v1/cancel": s.end(cancelPermit, false), "POST /v1/done": s.end(endPermit, true),
	} {
		h := http.Handler(serve)
		if s.cfg.Guard != nil {
			h = s.cfg.Guard.Require(access.Service, h)
		}
		mux.Handle(path, h)
	}
}
