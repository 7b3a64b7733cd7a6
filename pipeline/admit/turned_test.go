package admit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/alicebob/miniredis/v2"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/envoylimit"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
	"github.com/tallygate/tallygate/pipeline/enforce/grpclimit"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// TestWhoIsTurnedAwayBehindALine: a request that nothing has denied yet, and that finds others waiting for a
// limit that throttles, is denied by that limit where it cannot wait. It was 503, as if nobody knew.
func TestWhoIsTurnedAwayBehindALine(t *testing.T) {
	r := newRig(t, miniredis.RunT(t).Addr())
	r.rules(1, "    - {name: slow, public: slowly, match: {api: \"*\"}, window: bucket, limit: 12, per: 1m, burst: 1, strict: true, action: throttle}\n")
	a := r.admitter(func(c *Config) { c.MaxDelay, c.MaxDelayedPerKey = time.Minute, 1 })
	for range 2 { // the bucket is empty, and then somebody waits for 5 s
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan struct{})
		go func() { defer close(left); _, _ = a.Admit(ctx, uid("get.x", "42")) }()
		t.Cleanup(func() { leave(); <-left })
		testrun.Eventually(t, "it has come", func() bool { return a.Stats().Admitted > 0 })
	}
	testrun.Eventually(t, "it waits", a.lines.Busy)

	for _, q := range []Request{uid("get.x", "42"), named("its-own", "get.x")} {
		p := r.admit(a, q)
		if p.Admitted || p.InDoubt || p.By == nil || p.By.Rule.Name != "slow" || p.Key != "uid=42" || !p.Numbers.Limited || p.Numbers.RetryAfter <= 0 || p.Numbers.Limit <= 0 {
			t.Errorf("%+v", p)
		}
	}
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for door, response := range turnedAway(t, table, a) {
		after, _ := strconv.Atoi(response.Header().Get("Retry-After"))
		if response.Code != http.StatusTooManyRequests || after < 1 || after > 60 || response.Header().Get("Ratelimit") == "" {
			t.Errorf("%s: %d, %v, %s", door, response.Code, response.Header(), response.Body)
		}
	}
}

// turnedAway are the answers of all middlewares and proxies' doors to the user 42.
func turnedAway(t *testing.T, table *enforce.Table, a *Admitter) map[string]*httptest.ResponseRecorder {
	t.Helper()
	out := map[string]*httptest.ResponseRecorder{}
	serve := func(door string, h http.Handler) {
		out[door] = httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/x", nil)
		r.Header.Set("X-Tallygate-Uid", "42")
		r.Header.Set("X-Tallygate-Api", "get.x")
		h.ServeHTTP(out[door], r)
	}
	gate, err := httplimit.NewGate(table, httplimit.Options{UID: httplimit.Header("X-Tallygate-Uid"), Admit: a})
	if err != nil {
		t.Fatal(err)
	}
	serve("httplimit", gate.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	auth, err := forwardauth.New(forwardauth.Config{Decider: table, Admit: a})
	if err != nil {
		t.Fatal(err)
	}
	serve("forwardauth", auth)
	serve("Envoy over HTTP", auth.ExtAuthz(""))
	envoy, err := envoylimit.New(envoylimit.Config{Decider: table, Admit: a})
	if err != nil {
		t.Fatal(err)
	}
	checked, err := envoy.Check(t.Context(), &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{
		Http: &authv3.AttributeContext_HttpRequest{Method: "GET", Path: "/x", Headers: map[string]string{"x-tallygate-uid": "42", "x-tallygate-api": "get.x"}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	denied := httptest.NewRecorder()
	for _, h := range checked.GetDeniedResponse().GetHeaders() {
		denied.Header().Set(h.GetHeader().GetKey(), h.GetHeader().GetValue())
	}
	denied.WriteHeader(int(checked.GetDeniedResponse().GetStatus().GetCode()))
	out["Envoy over gRPC"] = denied
	calls, err := grpclimit.New(table, grpclimit.Options{UID: func(context.Context) string { return "42" }, Admit: a, API: func(string) string { return "get.x" }})
	if err != nil {
		t.Fatal(err)
	}
	_, err = calls.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/x/Y"}, func(context.Context, any) (any, error) { return nil, nil }) //nolint:nilnil // it is not called
	if status.Code(err) != codes.ResourceExhausted || len(status.Convert(err).Details()) < 2 {
		t.Errorf("grpclimit: %v", err)
	}
	return out
}
