package decision_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// However a client writes a blocked path, every protocol denies it: GET /search was 429, and GET
// /%73earch and HEAD /search were 200.
func TestNoSpellingOfAPathEvadesABlock(t *testing.T) {
	r := newRig(t).blocks(block("r", "uid", "42", only("get.search")))
	conn, _ := r.grpc(always)
	guarded := httplimit.Middleware(r.table, httplimit.Options{UID: func(*http.Request) string { return "42" }})(http.NotFoundHandler())
	for _, request := range []string{"GET /search", "HEAD /search", "GET /%73earch", "GET //search/", "GET /./search", "GET /x/../search", "GET /x/%2e%2e/Search",
		"GET /search;a=1", "GET /x%2f..%2fsearch?q=1", "GET /search#top", "GET /%73earch#/../x"} {
		method, target, _ := strings.Cut(request, " ")
		deny := map[string]bool{}
		for _, headers := range [][2]string{{"X-Original-Method", "X-Original-Uri"}, {"X-Forwarded-Method", "X-Forwarded-Uri"}, {"X-Original-Method", "X-Original-Url"}} {
			if headers[1] == "X-Original-Url" {
				target = "https://shop.example" + target
			}
			deny[headers[1]] = r.ask("X-Tallygate-Uid: 42", headers[0]+": "+method, headers[1]+": "+target).StatusCode == 429
		}
		_, target, _ = strings.Cut(request, " ")

		w := httptest.NewRecorder()
		asked := asSent(t, method, "/v1/ext-authz"+target)
		asked.Header.Set("X-Tallygate-Uid", "42")
		r.handler.ServeHTTP(w, asked)
		deny["ext_authz over HTTP"] = w.Code == 429

		w = httptest.NewRecorder()
		guarded.ServeHTTP(w, asSent(t, method, target))
		deny["the middleware"] = w.Code == 429

		checked, err := authv3.NewAuthorizationClient(conn).Check(within(t), &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{
			Http: &authv3.AttributeContext_HttpRequest{Method: method, Path: target, Headers: map[string]string{"x-tallygate-uid": "42"}}}}})
		deny["ext_authz over gRPC"] = err == nil && checked.GetDeniedResponse() != nil

		limited, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(within(t), &rlsv3.RateLimitRequest{Descriptors: []*ratelimitv3.RateLimitDescriptor{{
			Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "uid", Value: "42"}, {Key: "method", Value: method}, {Key: "path", Value: target}}}}})
		deny["the rate limit service"] = err == nil && limited.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT

		for protocol, denied := range deny {
			if !denied {
				t.Errorf("%s passes %s", request, protocol)
			}
		}
	}
}

// asSent is a request as a server reads it.
func asSent(t *testing.T, method, target string) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target + " HTTP/1.1\r\nHost: h\r\n\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	return r
}
