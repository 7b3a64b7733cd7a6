package envoylimit

import (
	"context"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/gate"
)

// permitHeader is event.PermitHeader as HTTP/2 writes it.
var permitHeader = strings.ToLower(event.PermitHeader)

// passed lets a request pass, with its permit in place of any that the client sent, and what is left.
func (s *Server) passed(a *gate.Outcome) *authv3.OkHttpResponse {
	out := &authv3.OkHttpResponse{ResponseHeadersToAdd: options(a.Header)}
	if s.door.Admit == nil {
		return out
	}
	if permit := a.Permit.Header(); permit != "" {
		out.Headers = append(out.Headers, overwrite(&corev3.HeaderValue{Key: permitHeader, Value: permit}))
	} else {
		out.HeadersToRemove = append(out.HeadersToRemove, permitHeader)
	}
	return out
}

// question is one descriptor's check.
type question struct {
	at   int // the descriptor's place in the request
	api  string
	dims []event.Dim
	cost event.Decimal // 0 asks for nothing
}

// admitAll asks for each descriptor. At the first denial it gives back what was granted before. The answer is
// that denial, or where the key stands that has the least room.
func (s *Server) admitAll(ctx context.Context, all []question, out *rlsv3.RateLimitResponse) (of enforce.Admission) {
	admitted := make([]enforce.Admission, 0, len(all))
	for _, q := range all {
		if q.cost == 0 {
			continue
		}
		a := enforce.AdmitProxied(ctx, s.door.Admit, enforce.Request{API: q.api, Dims: q.dims, Cost: q.cost})
		if a.Decision.Allowed {
			admitted = append(admitted, a)
			continue
		}
		for j := range admitted {
			if held := admitted[j].Held; held != nil {
				held.Cancel()
			}
		}
		out.OverallCode, out.Statuses[q.at] = rlsv3.RateLimitResponse_OVER_LIMIT, s.status(a.Decision)
		return a
	}
	of.Decision.Allowed = true
	for i := range admitted {
		a := &admitted[i]
		a.PassOn(s.door.EmitAdmitted)
		if permit := a.Permit.Header(); permit != "" {
			out.RequestHeadersToAdd = append(out.RequestHeadersToAdd, &corev3.HeaderValue{Key: permitHeader, Value: permit})
		}
		if a.Standing.Rule != "" && (of.Standing.Rule == "" || a.Standing.Remaining < of.Standing.Remaining) {
			of.Standing = a.Standing
		}
	}
	return of
}

// maxHits is more than any strict limit allows.
const maxHits = 1<<53/uint64(event.One) + 1

// costOf returns a descriptor's amount: hits_addend, or its own.
func costOf(d *ratelimitv3.RateLimitDescriptor, hits uint32) event.Decimal {
	n := uint64(max(hits, 1))
	if own := d.GetHitsAddend(); own != nil {
		n = own.GetValue()
	}
	if d.GetIsNegativeHits() { // events refund
		n = 0
	}
	return event.Decimal(min(n, maxHits)) * event.One
}
