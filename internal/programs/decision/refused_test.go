package decision_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
)

func (r *rig) wantMetrics(lines ...string) {
	r.t.Helper()
	w := httptest.NewRecorder()
	ops.MetricsHandler(r.registry, r.server.Ready).ServeHTTP(w, mustRequest(r.t, http.MethodGet, "/metrics"))
	for _, line := range lines {
		if !strings.Contains(w.Body.String(), line+"\n") {
			r.t.Errorf("no %s in\n%s", line, w.Body)
		}
	}
}

// checkOf asks ext_authz over gRPC with these headers, each of which may be there several times,
// and returns the status of a denial.
func (r *rig) checkOf(client authv3.AuthorizationClient, headers ...string) int {
	r.t.Helper()
	h := &authv3.AttributeContext_HttpRequest{Method: "GET", Path: "/search", HeaderMap: &corev3.HeaderMap{}}
	for _, text := range headers {
		name, value, _ := strings.Cut(text, ": ")
		h.HeaderMap.Headers = append(h.HeaderMap.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(value)})
	}
	resp, err := client.Check(within(r.t), &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{Http: h}}})
	if err != nil {
		r.t.Fatal(err)
	}
	return int(resp.GetDeniedResponse().GetStatus().GetCode())
}

// Forward-auth took the last of several values, others the first: the client chose.
func TestSeveralValuesOfOneHeaderAreDenied(t *testing.T) {
	for repeated, want := range map[forwardauth.Repeated][2]int{"": {400, 400}, "refuse": {400, 400}, "first": {204, 0}, "last": {429, 429}} {
		r := newRig(t, func(c *decision.Config) { c.Headers.Repeated = repeated }).blocks(block("u", "uid", "42"))
		conn, _ := r.grpc(always)
		req := mustRequest(t, http.MethodGet, "/v1/forward-auth")
		req.Header["X-Tallygate-Uid"] = []string{"43", "42"}
		if resp := r.do(req); resp.StatusCode != want[0] {
			t.Errorf("%q, forward-auth: %s, want %d", repeated, resp.Status, want[0])
		}
		if got := r.checkOf(authv3.NewAuthorizationClient(conn), "x-tallygate-uid: 43", "x-tallygate-uid: 42"); got != want[1] {
			t.Errorf("%q, ext_authz: %d, want %d", repeated, got, want[1])
		}
		if want[0] == http.StatusBadRequest {
			r.wantMetrics(`tallygate_checks_refused_total{reason="repeated_header"} 2`)
		}
	}
}

// A misnamed header gave 204 without a trace.
func TestChecksWithoutDimensionsAreCounted(t *testing.T) {
	for _, require := range []bool{false, true} {
		r := newRig(t, func(c *decision.Config) { c.RequireDimensions = require }).blocks(block("u", "uid", "42"))
		conn, _ := r.grpc(always)
		r.ask("X-Tallygate-Uid: 1") // has one
		r.check(`{"uid": 1, "api": "a"}`)
		limited, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(within(t), &rlsv3.RateLimitRequest{Descriptors: []*ratelimitv3.RateLimitDescriptor{
			{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "user", Value: "42"}}}, {Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "uid", Value: "1"}}}}})
		if err != nil {
			t.Fatal(err)
		}
		envoy := mustRequest(t, http.MethodGet, "/v1/ext-authz/search", "X-Uid: 42")
		got := map[string]int{
			"forward-auth":        r.ask("X-Uid: 42").StatusCode,
			"ext_authz over HTTP": r.do(envoy).StatusCode,
			"ext_authz over gRPC": r.checkOf(authv3.NewAuthorizationClient(conn), "x-uid: 42"),
			"check":               r.post("/v1/check", `{"api": "a"}`).StatusCode,
			"batch":               r.post("/v1/check/batch", `{"checks": [{"api": "a"}]}`).StatusCode,
		}
		want := map[string]int{"forward-auth": 204, "ext_authz over HTTP": 200, "ext_authz over gRPC": 0, "check": 200, "batch": 200}
		code := rlsv3.RateLimitResponse_OK
		if require {
			want, code = map[string]int{"forward-auth": 400, "ext_authz over HTTP": 400, "ext_authz over gRPC": 400, "check": 400, "batch": 400}, rlsv3.RateLimitResponse_OVER_LIMIT
		}
		for protocol, status := range want {
			if got[protocol] != status {
				t.Errorf("required %v, %s: %d, want %d", require, protocol, got[protocol], status)
			}
		}
		if s := limited.GetStatuses(); limited.GetOverallCode() != code || s[0].GetCode() != code || s[1].GetCode() != rlsv3.RateLimitResponse_OK || require != (len(limited.GetRawBody()) > 0) {
			t.Errorf("required %v, the rate limit service: %v", require, limited)
		}
		r.wantMetrics("tallygate_checks_without_dimensions_total 6")
		if require {
			r.wantMetrics(`tallygate_checks_refused_total{reason="no_dimensions"} 6`)
		}
	}
}
