package decision_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// neverFed is a decision server that never had a blocklist, and is closed then but for login.
func neverFed(t *testing.T) *rig {
	t.Helper()
	table, err := enforce.NewTable(enforce.Config{OnStale: enforce.Closed, Rules: map[string]enforce.RuleOnStale{"logins": {APIs: []string{"login"}}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = table.Run(ctx) }) // a table without Run stays stale
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return newRigOf(t, table)
}

// Each protocol denies what is closed while the table is stale, in its own words, and none says when
// that ends.
func TestClosedWhileStaleOverHTTP(t *testing.T) {
	r := neverFed(t)
	for path, status := range map[string]int{
		"/v1/forward-auth": 503, "/v1/forward-auth?denied=403": 503, "/v1/forward-auth?denied=401": 503,
		"/v1/ext-authz/x": 429, // to Envoy a 5xx is a failure of ours, and may let through
	} {
		resp := r.do(mustRequest(t, http.MethodGet, path, "X-Tallygate-Uid: 42", "X-Tallygate-Api: search.query"))
		body, _ := io.ReadAll(resp.Body)
		var p enforce.Problem
		if err := json.Unmarshal(body, &p); err != nil || resp.StatusCode != status || p.Status != status || p.Type != "about:blank" {
			t.Errorf("%s: %s %s, want %d", path, resp.Status, body, status)
		}
		if resp.Header.Get("Retry-After")+resp.Header.Get("RateLimit") != "" || strings.Contains(string(body), "retry_after") {
			t.Errorf("%s says when: %v %s", path, resp.Header, body)
		}
		if resp := r.do(mustRequest(t, http.MethodGet, path, "X-Tallygate-Uid: 42", "X-Tallygate-Api: login")); resp.StatusCode/100 != 2 {
			t.Errorf("%s denies what is open: %s", path, resp.Status)
		}
	}
	resp := r.post("/v1/check", `{"uid": "42", "api": "search.query"}`)
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 200 || !strings.HasPrefix(string(body), `{"allowed":false,"in_doubt":true,"verdicts":[],`) {
		t.Errorf("check: %s %s", resp.Status, body)
	}
}

func TestClosedWhileStaleOverGRPC(t *testing.T) {
	r := neverFed(t)
	conn, _ := r.grpc(always)
	limit, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(within(t), rateLimit("42"))
	if err != nil || limit.GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT {
		t.Fatalf("rate limit: %v, %v", limit, err)
	}
	if s := limit.GetStatuses()[0]; s.GetCode() != rlsv3.RateLimitResponse_OVER_LIMIT || s.DurationUntilReset != nil || s.CurrentLimit != nil {
		t.Errorf("its status is %v", s)
	}
	var p enforce.Problem
	// Which is the answer's.
	if err := json.Unmarshal(limit.GetRawBody(), &p); err != nil || p.Status != 429 || p.RetryAfter != 0 {
		t.Errorf("its body is %s", limit.GetRawBody())
	}
	for _, h := range limit.GetResponseHeadersToAdd() {
		if h.GetKey() != "cache-control" && h.GetKey() != "content-type" {
			t.Errorf("rate limit says %v", h)
		}
	}

	headers := map[string]string{"x-tallygate-uid": "42", "x-tallygate-api": "search.query"}
	authz, err := authv3.NewAuthorizationClient(conn).Check(within(t), &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{Method: "GET", Path: "/", Headers: headers}}}})
	if err != nil || codes.Code(authz.GetStatus().GetCode()) != codes.Unavailable || authz.GetDeniedResponse().GetStatus().GetCode() != 503 {
		t.Fatalf("ext_authz: %v, %v", authz, err)
	}
	for _, h := range authz.GetDeniedResponse().GetHeaders() {
		if h.GetHeader().GetKey() == "retry-after" {
			t.Errorf("ext_authz says %v", h)
		}
	}
}

// If one descriptor has a verdict and the other is denied because the table is stale, the answer is
// about the verdict: it says when it ends.
func TestAVerdictIsAnsweredBeforeStaleness(t *testing.T) {
	table, err := enforce.NewTable(enforce.Config{OnStale: enforce.Closed})
	if err != nil {
		t.Fatal(err)
	}
	table.Apply(0, []verdict.Verdict{block("r", "uid", "42")})
	r := newRigOf(t, table)
	conn, _ := r.grpc(always)
	for _, order := range [][]string{{"42", "43"}, {"43", "42"}} {
		req := rateLimit(order[0])
		req.Descriptors = append(req.Descriptors, rateLimit(order[1]).Descriptors...)
		resp, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(within(t), req)
		var p enforce.Problem
		if err != nil || json.Unmarshal(resp.GetRawBody(), &p) != nil || p.Action != "block" || p.RetryAfter == 0 {
			t.Errorf("%v: %v, %v", order, resp, err)
		}
	}
}
