package envoylimit

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
	"github.com/tallygate/tallygate/pipeline/event"
)

// Check implements ext_authz v3. The request's headers identify the client, as in forward-auth. The
// API is made of method and path unless a header names it. context_extensions override both: api,
// uid, ip, attrs.NAME; only a route's configuration can set them. Without an address there, it is
// the one that Envoy takes for the client's. A request that does not say clearly who sent it is
// refused with 400: see forwardauth.Refusal. Envoy denies by any status but OK, so a stale table
// that fails closed answers 503, whatever failure_mode_allow says: that is for the case without any
// answer. So does a strict limit in doubt, with Retry-After: 1.
func (s *Server) Check(ctx context.Context, req *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	r := req.GetAttributes().GetRequest().GetHttp()
	header := headerOf(r)
	api, dims, err := s.headers.ReadFor(header, cmp.Or(r.GetMethod(), http.MethodGet), r.GetPath())
	if refusal, ok := errors.AsType[*forwardauth.Refusal](err); ok {
		return s.refuse(r, header, refusal), nil
	}
	for name, value := range req.GetAttributes().GetContextExtensions() {
		switch {
		case name == "api":
			api = cmp.Or(value, api)
		case name == "ip":
			dims = set(dims, name, s.headers.Address(value))
		case name == "uid", known(name) && strings.HasPrefix(name, "attrs."):
			dims = set(dims, name, value)
		}
	}
	if !slices.ContainsFunc(dims, func(d event.Dim) bool { return d.Name == "ip" }) {
		peer := req.GetAttributes().GetSource().GetAddress().GetSocketAddress().GetAddress()
		dims = set(dims, "ip", s.headers.Address(peer))
	}
	slices.SortFunc(dims, func(a, b event.Dim) int { return strings.Compare(a.Name, b.Name) })
	if s.require && len(dims) == 0 {
		return s.refuse(r, header, forwardauth.RequireDimensions()), nil
	}
	d := s.decider.CheckDims(api, dims)
	asked := d.Allowed && forwardauth.Asks(s.decider, s.admit)
	a := enforce.Admission{Decision: d}
	if asked {
		a = enforce.AdmitProxied(ctx, s.admit, enforce.Request{API: api, Dims: dims})
	}
	if a.Decision.Allowed {
		return &authv3.CheckResponse{
			Status:       &rpcstatus.Status{Code: int32(codes.OK)},
			HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: s.passed(&a, forwardauth.Left(s.decider, api, dims))},
		}, nil
	}
	status := &rpcstatus.Status{Code: int32(codes.ResourceExhausted), Message: "over a limit"}
	if a.Decision.Unavailable() {
		status = &rpcstatus.Status{Code: int32(codes.Unavailable), Message: "in doubt"}
	}
	return deniedResponse(status, denied(&s.answers, a.Decision, &http.Request{Method: r.GetMethod(), Header: header}, asked)), nil
}

// refuse denies a request that does not say clearly who sent it or what it asks for.
func (s *Server) refuse(r *authv3.AttributeContext_HttpRequest, header http.Header, why *forwardauth.Refusal) *authv3.CheckResponse {
	s.refused(why)
	a := &answer{header: http.Header{}}
	enforce.RefusedBecause(a, &http.Request{Method: r.GetMethod(), Header: header}, why.Detail)
	return deniedResponse(&rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: why.Detail}, a)
}

func deniedResponse(status *rpcstatus.Status, a *answer) *authv3.CheckResponse {
	out := &authv3.DeniedHttpResponse{Status: &typev3.HttpStatus{Code: typev3.StatusCode(a.status)}, Body: a.body.String()}
	for _, name := range a.names() {
		out.Headers = append(out.Headers, overwrite(strings.ToLower(name), a.header.Get(name)))
	}
	return &authv3.CheckResponse{Status: status, HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: out}}
}

// headerOf returns the request's header, in either of the two forms in which Envoy may send it.
func headerOf(r *authv3.AttributeContext_HttpRequest) http.Header {
	header := make(http.Header, len(r.GetHeaders()))
	for name, value := range r.GetHeaders() {
		header.Add(name, value)
	}
	for _, h := range r.GetHeaderMap().GetHeaders() {
		value := h.GetValue()
		if len(h.GetRawValue()) > 0 {
			value = string(h.GetRawValue())
		}
		header.Add(h.GetKey(), value)
	}
	return header
}

// set gives a dimension a value; "" leaves it as it is.
func set(dims []event.Dim, name, value string) []event.Dim {
	if value == "" {
		return dims
	}
	if i := slices.IndexFunc(dims, func(d event.Dim) bool { return d.Name == name }); i >= 0 {
		dims[i].Value = value
		return dims
	}
	return append(dims, event.Dim{Name: name, Value: value})
}
