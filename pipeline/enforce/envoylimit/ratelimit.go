package envoylimit

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
	"github.com/tallygate/tallygate/pipeline/enforce/gate"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// maxDescriptors bounds a request; Envoy sends a handful.
const maxDescriptors = 1000

// ShouldRateLimit implements RateLimitService v3. Each descriptor is one check with a status of its
// own: OVER_LIMIT when a verdict denies. The response is OVER_LIMIT when one of them is. Its
// headers and body are those of Config.Answers for the verdict that ends last. Nothing is counted
// here: the request's limits have no effect, only events count. A descriptor that Config.Usage marks asks
// nothing: its status is OK, whatever it says, and it becomes an event. No request leads to an error, which
// would be for Envoy's failure_mode_deny to judge: one with too many descriptors is OVER_LIMIT.
//
// When no verdict denies, a permit is asked for each descriptor, if Config.Admit is set. Its cost is the
// descriptor's hits_addend, or else the request's; for one of 0, and for negative ones, none is asked.
// If one is denied, the permits of those before it are given back. Each permit is one of
// request_headers_to_add. Envoy adds to the client's headers: it has to remove the client's first.
//
// A stale table that fails closed is OVER_LIMIT too, without a duration: the protocol has no other
// denial. An error would leave the decision to Envoy's failure_mode_deny. That allows by default,
// and holds for all requests, while single rules can fail closed. Where dimensions are required, a
// descriptor without any is also OVER_LIMIT.
func (s *Server) ShouldRateLimit(ctx context.Context, req *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	if n := len(req.GetDescriptors()); n > maxDescriptors {
		return s.tooMany(n), nil
	}
	out := &rlsv3.RateLimitResponse{
		OverallCode: rlsv3.RateLimitResponse_OK,
		Statuses:    make([]*rlsv3.RateLimitResponse_DescriptorStatus, len(req.GetDescriptors())),
	}
	worst := gate.Request{Decision: enforce.Decision{Allowed: true}}
	var all []question
	var quotas []enforce.Left
	asks := forwardauth.Asks(s.door.Decider, s.door.Admit)
	for i, descriptor := range req.GetDescriptors() {
		if hits, reports := s.usage.marks(req.GetDomain(), descriptor, req.GetHitsAddend()); reports {
			s.usage.report(s.read(descriptor), descriptor.GetIsNegativeHits(), hits)
			out.Statuses[i] = &rlsv3.RateLimitResponse_DescriptorStatus{Code: rlsv3.RateLimitResponse_OK}
			continue
		}
		said := s.read(descriptor)
		api, dims := said.api, said.dims
		if err := s.door.Required(dims); err != nil {
			s.door.Refuse(&worst, err)
			out.OverallCode, out.Statuses[i] = rlsv3.RateLimitResponse_OVER_LIMIT, &rlsv3.RateLimitResponse_DescriptorStatus{Code: rlsv3.RateLimitResponse_OVER_LIMIT}
			continue
		}
		q := gate.Request{API: api, Dims: dims, Unclear: worst.Unclear}
		s.door.Check(&s.limits, &q)
		out.Statuses[i] = s.status(q.Decision)
		if q.Decision.Allowed {
			quotas = append(quotas, s.remaining(out.Statuses[i], forwardauth.Left(s.door.Decider, api, dims))...)
		} else if worst.Decision.Allowed || q.Decision.Until().After(worst.Decision.Until()) { // none when unavailable
			out.OverallCode, worst = rlsv3.RateLimitResponse_OVER_LIMIT, q
		}
		if asks {
			all = append(all, question{i, api, dims, costOf(descriptor, req.GetHitsAddend())})
		}
	}
	if !worst.Decision.Allowed {
		worst.Unclear = "" // a verdict's end is worth more
	} else if asks && worst.Unclear == "" {
		worst.Tells = true
		worst.Answered(s.admitAll(ctx, all, out), nil, event.FromTime(time.Now()))
	}
	decided := gate.Decide(&s.limits, &worst)
	switch {
	case decided.Do != gate.Allow:
		out.RawBody = decided.Body()
	case len(decided.Header) == 0: // else a permit knows better
		slices.SortStableFunc(quotas, func(a, b enforce.Left) int { return cmp.Compare(a.Left(), b.Left()) })
		decided.Left(&s.limits, quotas)
	}
	out.ResponseHeadersToAdd = values(decided.Header)
	return out, nil
}

// tooMany denies a request as a whole.
func (s *Server) tooMany(n int) *rlsv3.RateLimitResponse {
	var q gate.Request
	s.door.Refuse(&q, &forwardauth.Refusal{Reason: forwardauth.TooMany, Detail: fmt.Sprintf("%d descriptors, at most %d in one request", n, maxDescriptors)})
	decided := gate.Decide(&s.limits, &q)
	out := &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OVER_LIMIT, RawBody: decided.Body(), ResponseHeadersToAdd: values(decided.Header)}
	over := &rlsv3.RateLimitResponse_DescriptorStatus{Code: rlsv3.RateLimitResponse_OVER_LIMIT}
	for range n {
		out.Statuses = append(out.Statuses, over)
	}
	return out
}

// remaining puts the least that is left into an allowed descriptor's status, and returns all.
func (s *Server) remaining(status *rlsv3.RateLimitResponse_DescriptorStatus, quotas []enforce.Left) []enforce.Left {
	if told := s.answers.Tell(quotas); len(told) > 0 {
		status.LimitRemaining = uint32(min(told[0].Left, math.MaxUint32))
		status.DurationUntilReset = durationpb.New(told[0].After)
		status.CurrentLimit = &rlsv3.RateLimitResponse_RateLimit{Name: told[0].Name, RequestsPerUnit: uint32(min(told[0].Limit, math.MaxUint32))}
	}
	return quotas
}

// read sorts the entries of a descriptor. Of entries with the same meaning the first counts: they are
// Envoy's configuration, and clients cannot add any.
func (s *Server) read(descriptor *ratelimitv3.RateLimitDescriptor) (d described) {
	for _, e := range descriptor.GetEntries() {
		meaning, mapped := s.entries[e.GetKey()]
		if !mapped {
			meaning = e.GetKey()
		}
		value := e.GetValue()
		if text := d.text(meaning); text != nil {
			*text = cmp.Or(*text, value)
		} else if meaning == "ip" {
			d.dims = appendOnce(d.dims, "ip", s.headers.Address(value))
		} else if known(meaning) {
			d.dims = appendOnce(d.dims, meaning, value)
		}
	}
	if d.api == "" && d.path != "" {
		d.api = httplimit.PathAPI(cmp.Or(d.method, http.MethodGet), d.path)
	}
	slices.SortFunc(d.dims, func(a, b event.Dim) int { return strings.Compare(a.Name, b.Name) })
	return d
}

func appendOnce(dims []event.Dim, name, value string) []event.Dim {
	if value == "" || slices.ContainsFunc(dims, func(d event.Dim) bool { return d.Name == name }) {
		return dims
	}
	return append(dims, event.Dim{Name: name, Value: value})
}

func (s *Server) status(d enforce.Decision) *rlsv3.RateLimitResponse_DescriptorStatus {
	if d.Allowed {
		return &rlsv3.RateLimitResponse_DescriptorStatus{Code: rlsv3.RateLimitResponse_OK}
	}
	out := &rlsv3.RateLimitResponse_DescriptorStatus{Code: rlsv3.RateLimitResponse_OVER_LIMIT}
	if after := d.RetryAfter(); after > 0 {
		out.DurationUntilReset = durationpb.New(after)
	}
	if limit := d.Limit(); limit > 0 { // a block by command has no limit
		// Envoy shows the name to callers. The unit is unknown here: a verdict doesn't have its
		// window.
		out.CurrentLimit = &rlsv3.RateLimitResponse_RateLimit{
			Name: s.answers.PublicName(d), RequestsPerUnit: uint32(min(int64(limit/event.One), math.MaxUint32)),
		}
	}
	return out
}
