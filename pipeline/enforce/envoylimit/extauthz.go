package envoylimit

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/gate"
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
	q := gate.Request{API: api, Dims: dims, Languages: header.Get("Accept-Language"), Head: r.GetMethod() == http.MethodHead, Tells: true}
	out := s.door.Enter(ctx, &s.answers, &q, err)
	status := &rpcstatus.Status{Code: int32(codes.ResourceExhausted), Message: "over a limit"}
	switch {
	case out.Do == gate.Allow:
		return &authv3.CheckResponse{
			Status:       &rpcstatus.Status{Code: int32(codes.OK)},
			HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: s.passed(&out)},
		}, nil
	case out.Do == gate.Refuse:
		status = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: q.Unclear}
	case out.By.Unavailable():
		status = &rpcstatus.Status{Code: int32(codes.Unavailable), Message: "in doubt"}
	}
	return &authv3.CheckResponse{Status: status, HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
		Status: &typev3.HttpStatus{Code: typev3.StatusCode(out.Status)}, Headers: options(out.Header), Body: string(out.Body()),
	}}}, nil
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
