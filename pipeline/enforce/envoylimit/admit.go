package envoylimit

import (
	"context"
	"net/http"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/event"
)

// permitHeader is event.PermitHeader as HTTP/2 writes it.
var permitHeader = strings.ToLower(event.PermitHeader)

// passed lets a request pass, with its permit in place of any that the client sent, and what is left.
func (s *Server) passed(a *enforce.Admission, quotas []enforce.Left) *authv3.OkHttpResponse {
	out := &authv3.OkHttpResponse{}
	if s.admit != nil {
		a.PassOn(s.emit)
		if permit := a.Permit.Header(); permit != "" {
			out.Headers = append(out.Headers, overwrite(permitHeader, permit))
		} else {
			out.HeadersToRemove = append(out.HeadersToRemove, permitHeader)
		}
	}
	left := &answer{header: http.Header{}}
	s.answers.Admitted(left.header, a.Standing)
	s.answers.Quotas(left.header, quotas)
	for _, name := range left.names() {
		out.ResponseHeadersToAdd = append(out.ResponseHeadersToAdd, overwrite(strings.ToLower(name), left.header.Get(name)))
	}
	return out
}

func overwrite(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, Value: value},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// question is what one descriptor asks.
type question struct {
	api  string
	dims []event.Dim
	cost event.Decimal // 0 asks for nothing
}

// admitAll asks for each descriptor. At the first denial it gives back what was granted before.
func (s *Server) admitAll(ctx context.Context, all []question, out *rlsv3.RateLimitResponse) (d enforce.Decision, denied bool) {
	admitted := make([]enforce.Admission, 0, len(all))
	for i, q := range all {
		if q.cost == 0 {
			continue
		}
		a := enforce.AdmitProxied(ctx, s.admit, enforce.Request{API: q.api, Dims: q.dims, Cost: q.cost})
		if a.Decision.Allowed {
			admitted = append(admitted, a)
			continue
		}
		for j := range admitted {
			if held := admitted[j].Held; held != nil {
				held.Cancel()
			}
		}
		out.OverallCode, out.Statuses[i] = rlsv3.RateLimitResponse_OVER_LIMIT, s.status(a.Decision)
		return a.Decision, true
	}
	least := enforce.Standing{}
	for i := range admitted {
		a := &admitted[i]
		a.PassOn(s.emit)
		if permit := a.Permit.Header(); permit != "" {
			out.RequestHeadersToAdd = append(out.RequestHeadersToAdd, &corev3.HeaderValue{Key: permitHeader, Value: permit})
		}
		if a.Standing.Rule != "" && (least.Rule == "" || a.Standing.Remaining < least.Remaining) {
			least = a.Standing
		}
	}
	left := &answer{header: http.Header{}}
	s.answers.Admitted(left.header, least)
	out.ResponseHeadersToAdd = left.values()
	return d, false
}

// maxHits is more than any strict limit allows.
const maxHits = 1<<53/uint64(event.One) + 1

// costOf is what a descriptor adds to its limits: hits_addend, or its own.
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
